"""A report as text: a table, one row a program, and a summary."""

from collections.abc import Mapping, Sequence
from typing import Any

from jengine.aot.report import Proof, Report

_GIB, _MIB, _KIB = 2**30, 2**20, 2**10
_HEADINGS = (
    ("program", ""),
    ("compile", "s"),
    ("args", "GiB"),
    ("temp", "MiB"),
    ("aliased", "GiB"),
    ("KV", "copies"),
    ("launches", ""),
    ("a", "layer"),
    ("regis-", "ters"),
    ("spill", "bytes"),
    ("shared", "KiB"),
    ("moved", "GB"),
    ("", "TFLOP"),
    ("roofline", "ms"),
    ("tokens", "/s"),
)


def format_report(report: Report) -> str:
    """Return the whole report, lines ending in newlines."""
    parts = [format_head(report), format_table(report), format_summary(report)]
    return "\n".join(parts)


def format_head(report: Report) -> str:
    """Say what was compiled for what, and what was not."""
    survey = report.survey
    concluded = sum(bool(p.get("concluded_from")) for p in report.programs)
    cards = survey["tensor_parallel_size"]
    times = "" if cards == 1 else f"{cards} x "
    depth, layers = survey["layers_compiled"], survey["num_layers"]
    lines = [
        f"{survey['model']} on {times}{survey['target']} ({survey['device_kind']}), "
        f"{survey['dtype']}, {survey['attention_backend']} attention, "
        f"jax {survey['jax']}",
    ]
    if cards > 1:
        lines.append("bytes, operations and launches are those of each card")
    if depth < layers:
        lines.append(
            f"compiled with {depth} of {layers} equal layers, figures are for all of "
            "them (--layers all compiles all)"
        )
    if concluded:
        lines.append(
            f"compiled {len(report.programs) - concluded} of {len(report.programs)} "
            "programs; figures of those with ~ follow from these, as checked below "
            "(--sizes all compiles all)"
        )
    return _lines(lines)


def format_table(report: Report) -> str:
    """Return the table of programs."""
    rows = [_cells(program) for program in report.programs]
    columns = list(zip(*_HEADINGS, strict=True))
    cells = [*map(list, columns), *(row for row in rows if len(row) > 2)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    widths[0] = max([widths[0], *(len(row[0]) for row in rows)])
    lines = [_line(cell, widths) for cell in columns]
    return _lines([*lines, *(_line(row, widths) for row in rows)])


def format_summary(report: Report) -> str:
    """Say what fits, and whether what was concluded holds."""
    survey = report.survey
    tokens, longest = survey["kv_tokens"], survey["max_model_len"]
    rows, context = survey["max_num_seqs"], survey["context"]
    seconds = sum(p.get("compile_s") or 0.0 for p in report.programs)
    lines = [
        _memory_line(report),
        f"KV cache: {survey['kv_blocks']:,} blocks of {survey['block_size']}, "
        f"{tokens:,} tokens: {tokens / longest:.1f} requests of {longest:,} tokens",
        f"largest batch: {min(rows, tokens // context):,} requests of {context:,} "
        f"tokens; max_num_seqs is {rows:,}, and so many have "
        f"{survey['context_of_all_rows']:,} each",
        f"programs: {len(report.programs)}, {seconds:.0f} s of compiling, two at a "
        "time",
        "roofline: weights once, KV at that context, no activations, no collectives; "
        f"{survey['memory_bandwidth'] / 1e12:g} TB/s, "
        f"{survey['bf16_tflops']:g} TFLOP/s",
    ]
    lines += [_proof_line(proof) for proof in report.proofs]
    lines += [f"{p['name']}: {p['error']}" for p in report.failures]
    return _lines(lines)


def _memory_line(report: Report) -> str:
    survey = report.survey
    share = survey["gpu_memory_utilization"]
    return (
        f"memory: {survey['memory_bytes'] / _GIB:.1f} GiB, of which weights "
        f"{survey['weight_bytes'] / _GIB:.1f}, KV cache {survey['kv_bytes'] / _GIB:.1f}"
        f" (gpu_memory_utilization {share:g}), largest program "
        f"{report.largest_own_bytes / _GIB:.2f}"
    )


def _proof_line(proof: Proof) -> str:
    found, concluded = proof.found, proof.concluded
    if proof.of_size:
        what = f"{proof.name}, which follows from others, was compiled too: "
        advice = "use --sizes all"
    else:
        what = f"{proof.name} with all {found.layers} layers: "
        advice = "use --layers all"
    counts = (
        f"{found.launches} launches ({concluded.launches} concluded), temp "
        f"{found.temp_bytes / _MIB:.1f} MiB ({concluded.temp_bytes / _MIB:.1f})"
    )
    if proof.holds:
        return f"checked: {what}{counts}, arguments, aliases and copies as concluded"
    return f"DIFFERS: {what}{counts}; {advice}"


def _cells(program: Mapping[str, Any]) -> Sequence[str]:
    if "error" in program:
        return (program["name"], f"FAILED: {program['error'][:100]}")
    kernels = program["kernels"]
    return (
        program["name"],
        "~" if program["concluded_from"] else f"{program['compile_s']:.1f}",
        f"{program['argument_bytes'] / _GIB:.2f}",
        f"{program['temp_bytes'] / _MIB:.1f}",
        f"{program['aliased_bytes'] / _GIB:.2f}",
        str(program["kv_copies"]),
        str(program["launches"]),
        str(program["launches_per_layer"] or "-"),
        _joined(kernel["registers"] for kernel in kernels),
        _joined(kernel["spill_bytes"] for kernel in kernels),
        _joined(round(kernel["shared_bytes"] / _KIB) for kernel in kernels),
        f"{program['bytes_moved'] / 1e9:.2f}",
        f"{program['flops'] / 1e12:.3f}",
        f"{program['roofline_ms']:.3f}",
        f"{program['roofline_tokens_per_s']:,.0f}",
    )


def _joined(numbers: Any) -> str:
    return "+".join(map(str, numbers)) or "-"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first = cells[0].ljust(widths[0])
    rest = [
        cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=False)
    ]
    return "  ".join([first, *rest]).rstrip()


def _lines(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
