from typing import Any

import pytest

from jengine.aot.facts import ProgramFacts
from jengine.aot.report import Proof, Report
from jengine.aot.table import format_head, format_report, format_summary, format_table

SURVEY: dict[str, Any] = {
    "target": "h200",
    "model": "llama",
    "device_kind": "NVIDIA H200",
    "memory_bytes": 141 * 2**30,
    "memory_bandwidth": 4800000000000,
    "bf16_tflops": 989.4,
    "tensor_parallel_size": 1,
    "dtype": "bfloat16",
    "attention_backend": "pallas",
    "gpu_memory_utilization": 0.92,
    "weight_bytes": 15 * 2**30,
    "num_layers": 32,
    "layers_compiled": 3,
    "kv_blocks": 58368,
    "block_size": 16,
    "kv_bytes": 114 * 2**30,
    "kv_tokens": 933872,
    "max_model_len": 131072,
    "max_num_seqs": 256,
    "context": 4096,
    "context_of_all_rows": 3647,
    "jax": "0.11.2",
}
DECODE = {
    "name": "decode_r8_w128_greedy",
    "compile_s": 4.25,
    "argument_bytes": 2**30,
    "temp_bytes": 2**20,
    "aliased_bytes": 2**29,
    "kv_copies": 0,
    "launches": 460,
    "launches_per_layer": 14,
    "kernels": [
        {"registers": 96, "spill_bytes": 0, "shared_bytes": 72192},
        {"registers": 184, "spill_bytes": 8, "shared_bytes": 2048},
    ],
    "bytes_moved": 19_300_000_000,
    "flops": 150_000_000_000,
    "roofline_ms": 4.0208,
    "roofline_tokens_per_s": 1989.6,
    "own_bytes": 2**20,
    "concluded_from": [],
}
SAMPLE = DECODE | {"name": "sample", "launches_per_layer": None, "kernels": []}
CONCLUDED = DECODE | {"compile_s": None, "concluded_from": ["a", "b"]}
BROKEN = {"name": "sample_r8_random", "error": "the compiler crashed: LLVM ERROR"}


def report(*programs, proofs=(), **changes):
    return Report(survey=SURVEY | changes, programs=programs, proofs=proofs)


def facts(launches):
    return ProgramFacts(
        layers=32,
        compile_s=9.0,
        argument_bytes=1,
        output_bytes=1,
        temp_bytes=1,
        aliased_bytes=1,
        kv_copies=0,
        launches=launches,
        launches_per_layer=14,
        collectives={},
        kernels=(),
    )


def test_a_row_has_a_cell_for_each_heading():
    lines = format_table(report(DECODE)).splitlines()
    assert len(lines) == 3
    assert lines[2].split() == [
        *("decode_r8_w128_greedy", "4.2", "1.00", "1.0", "0.50", "0", "460", "14"),
        *("96+184", "0+8", "70+2", "19.30", "0.150", "4.021", "1,990"),
    ]


def test_columns_stay_under_their_headings():
    lines = format_table(report(DECODE, SAMPLE, BROKEN)).splitlines()
    first, second, *rows = lines
    end = first.index("launches") + len("launches")
    assert all(row[:end].endswith("460") for row in rows[:2])
    assert second.startswith(" " * len(DECODE["name"]))


def test_a_program_without_layers_or_kernels_has_dashes():
    cells = format_table(report(SAMPLE)).splitlines()[2].split()
    assert cells[7:11] == ["-", "-", "-", "-"]


def test_a_failed_program_says_so_in_its_row():
    row = format_table(report(DECODE, BROKEN)).splitlines()[3]
    assert row.split(maxsplit=1) == [
        "sample_r8_random",
        "FAILED: the compiler crashed: LLVM ERROR",
    ]


def test_the_head_says_what_is_not_the_whole():
    head = format_head(report(DECODE))
    assert "llama on h200 (NVIDIA H200), bfloat16, pallas attention, jax 0.11.2" in head
    assert "3 of 32 equal layers" in head
    assert "programs" not in head
    whole = format_head(report(DECODE, layers_compiled=32))
    assert "equal layers" not in whole
    few = format_head(report(DECODE, CONCLUDED, SAMPLE))
    assert "compiled 2 of 3 programs; figures of those with ~ follow from these" in few
    split = format_head(report(DECODE, tensor_parallel_size=2))
    assert "on 2 x h200" in split
    assert "each card" in split


def test_the_summary_says_what_fits():
    summary = format_summary(report(DECODE, SAMPLE))
    assert "141.0 GiB, of which weights 15.0, KV cache 114.0" in summary
    assert "58,368 blocks of 16, 933,872 tokens: 7.1 requests of 131,072" in summary
    assert "largest batch: 227 requests of 4,096 tokens" in summary
    assert "programs: 2, 8 s of compiling" in summary
    assert "4.8 TB/s, 989.4 TFLOP/s" in summary


@pytest.mark.parametrize(
    ("launches", "of_size", "words"),
    [
        (460, False, "checked: x with all 32 layers: 460 launches (460 concluded), "),
        (461, False, "DIFFERS: x with all 32 layers: 461 launches (460 concluded), "),
        (461, True, "checked: x, which follows from others, was compiled too: 461 "),
        (600, True, "DIFFERS: x, which follows from others, was compiled too: 600 "),
    ],
)
def test_what_was_checked_is_said(launches, of_size, words):
    proof = Proof(
        name="x", found=facts(launches), concluded=facts(460), of_size=of_size
    )
    summary = format_summary(report(DECODE, proofs=(proof,)))
    assert words in summary
    advice = "use --sizes all" if of_size else "use --layers all"
    assert (advice in summary) == words.startswith("DIFFERS")


def test_a_program_that_was_not_compiled_is_marked():
    rows = format_table(report(DECODE, CONCLUDED)).splitlines()[2:]
    cells = [row.split() for row in rows]
    assert [cell[1] for cell in cells] == ["4.2", "~"]
    assert cells[0][2:] == cells[1][2:]
    summary = format_summary(report(DECODE, CONCLUDED))
    assert "programs: 2, 4 s of compiling" in summary


def test_the_whole_report_ends_in_one_newline():
    text = format_report(report(DECODE, BROKEN))
    assert text.endswith("LLVM ERROR\n")
    assert "\n\n\n" not in text
