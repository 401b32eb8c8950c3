import jax.numpy as jnp
import pytest

from jengine.bench.gpu_check.attention_chain import ChainArrays
from jengine.bench.gpu_check.compile_ahead import CompileAhead
from jengine.bench.gpu_check.parts.tuning import (
    FULL,
    SMOKE,
    best_of,
    entry_text,
    tiling_of,
    time_tile,
)
from jengine.bench.gpu_check.recorder import SkipCaseError
from jengine.bench.gpu_check.target import find_target
from kernels_pallas.paged_attention import Tile
from kernels_pallas.paged_attention.tuning_table import Entry

TARGET = find_target()
DECODE, PREFILL, SPLITS = FULL[0], FULL[1], FULL[2]


def test_every_tile_can_be_made_and_only_what_varies_differs():
    for sweep in (*FULL, *SMOKE):
        usual = TARGET.tiling(
            heads=sweep.shape.heads.num_heads,
            kv_heads=sweep.shape.heads.num_kv_heads,
            head_dim=sweep.shape.heads.head_dim,
            dtype="bfloat16",
            num_tokens=sweep.shape.rows * sweep.shape.queries,
            num_rows=sweep.shape.rows,
        )
        made = [tiling_of(sweep, sizes, TARGET) for sizes in sweep.tiles]
        assert len(set(made)) == len(made)
        other = "prefill" if sweep.launch == "decode" else "decode"
        assert {getattr(tiling, other) for tiling in made} == {getattr(usual, other)}


def test_names_of_sweeps_are_unique():
    names = [sweep.name for sweep in FULL]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("sweep", [DECODE, PREFILL], ids=["decode", "prefill"])
def test_the_best_tile_is_an_entry_of_the_table(sweep):
    found = {
        seconds: tiling_of(sweep, sizes, TARGET)
        for seconds, sizes in zip((3e-4, 2e-4, 5e-4), sweep.tiles, strict=False)
    }
    text = best_of(sweep, found, TARGET)["entry"]
    entry = eval(text, {"Entry": Entry, "Tile": Tile})
    rows, keys, warps, stages = sweep.tiles[1]
    assert entry.tile == Tile(rows, keys, 1, warps, stages)
    assert (entry.launch, entry.architectures) == (sweep.launch, ("sm_90",))
    assert (entry.max_head_dim, entry.max_group) == (128, 4)
    assert "timed on" in entry.provenance
    unit = "TB/s at 64 x 4096" if sweep is DECODE else "TFLOP/s at 1 x 4096"
    assert entry.provenance.endswith(unit)


def test_a_rate_is_that_of_the_time():
    tile = Tile(16, 64)
    seconds = DECODE.shape.work.bytes_moved / 3e12
    assert "3.00 TB/s" in entry_text(DECODE, tile, seconds, TARGET)


def test_splits_are_compared_with_those_of_the_table():
    found = {
        seconds: tiling_of(SPLITS, sizes, TARGET)
        for seconds, sizes in zip((3e-5, 2e-5), SPLITS.tiles, strict=False)
    }
    fields = best_of(SPLITS, found, TARGET)
    assert fields["num_splits"] == 2
    usual = tiling_of(SPLITS, (1,), TARGET)
    assert usual.decode.num_splits == 1  # what varies is not what the table says
    assert fields["usual"] > 1
    assert f"use {fields['usual']}" in fields["summary"]


def test_a_tile_that_does_not_compile_is_left_out():
    def refuse():
        raise RuntimeError("requested 240000 bytes of shared memory, available 232448")

    programs = CompileAhead({"x": refuse}, threads=1)
    with pytest.raises(SkipCaseError, match="does not compile: requested 240000"):
        time_tile(PREFILL, programs, "x", jnp.zeros(1), ChainArrays(*[None] * 5))
