"""Tiles of the attention kernel, timed; the best as entries of its tuning table.

Decode tiles are compared where the keys of many rows are read, prefill tiles on one
long prompt, splits on few rows, since there the table leaves them to the device.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax

from jengine.bench.gpu_check.arithmetic import Heads
from jengine.bench.gpu_check.attention_chain import (
    ChainArrays,
    ChainShape,
    make_chain_arrays,
    pallas_chain,
)
from jengine.bench.gpu_check.compile_ahead import CompileAhead
from jengine.bench.gpu_check.recorder import Recorder, SkipCaseError
from jengine.bench.gpu_check.target import Target, find_target
from jengine.bench.gpu_check.timing import time_chain
from kernels_pallas.paged_attention import Tile, Tiling
from kernels_pallas.paged_attention.tuning_table import HALF, Entry

_MIB = 2**20


class Sweep(NamedTuple):
    """Tiles to compare on one shape.

    Attributes:
      launch: whose tiles they are, "decode" or "prefill".
      what: varies: "tiles", or "splits" of the tile that an engine would use.
      shape: to time them on.
      tiles: (rows, keys, warps, stages) of each; splits where these vary.
    """

    launch: str
    what: str
    shape: ChainShape
    tiles: tuple[tuple[int, ...], ...]

    @property
    def name(self) -> str:
        """What a record calls it."""
        shape = self.shape
        size = f"{shape.rows} x {shape.context}, head {shape.heads.head_dim}"
        return f"{self.launch} {self.what}, {size}"


_DECODES = (
    (16, 64, 4, 5), (16, 64, 4, 3), (16, 64, 4, 7), (16, 64, 8, 5), (16, 32, 4, 5),
    (16, 32, 2, 5), (16, 32, 4, 7), (16, 128, 4, 5), (16, 128, 8, 5), (16, 128, 8, 3),
)  # fmt: skip
_PREFILLS = (
    (128, 64, 8, 5), (128, 64, 8, 3), (128, 64, 4, 3), (128, 128, 8, 3),
    (128, 32, 8, 5), (64, 64, 4, 5), (64, 64, 4, 3), (64, 128, 4, 3), (64, 32, 4, 5),
    (256, 32, 8, 5), (256, 64, 8, 3),
)  # fmt: skip
_SPLITS = ((1,), (2,), (4,), (8,), (16,), (32,))


def _sweeps(heads: Heads) -> tuple[Sweep, ...]:
    return (
        Sweep("decode", "tiles", ChainShape(64, 4096, 1, heads), _DECODES),
        Sweep("prefill", "tiles", ChainShape(1, 4096, 4096, heads), _PREFILLS),
        Sweep("decode", "splits", ChainShape(8, 4096, 1, heads), _SPLITS),
        Sweep("decode", "splits", ChainShape(1, 16384, 1, heads), _SPLITS),
    )


FULL = (*_sweeps(Heads(32, 8, 128)), *_sweeps(Heads(32, 8, 64))[:2])
_SMALL = Heads(4, 2, 16)
# What an engine would use, which the part before has compiled.
SMOKE = (
    Sweep("decode", "tiles", ChainShape(2, 40, 1, _SMALL), ((16, 64, 4, 5),)),
    Sweep("decode", "splits", ChainShape(2, 40, 1, _SMALL), ((32,),)),
)


def run(recorder: Recorder) -> None:
    """Time every tile of every sweep, and name the best of each."""
    target = find_target()
    for sweep in SMOKE if recorder.smoke else FULL:
        _run_sweep(sweep, recorder, target)


def _run_sweep(sweep: Sweep, recorder: Recorder, target: Target) -> None:
    tilings = {f"{sweep.name}: {t}": tiling_of(sweep, t, target) for t in sweep.tiles}
    todo = {name: one for name, one in tilings.items() if not recorder.is_done(name)}
    if not todo or recorder.left_s < 3.0:
        for name in todo:
            recorder.skip(name, f"{recorder.left_s:.0f} s left")
        return
    num_calls = sweep.shape.num_calls(1 if recorder.smoke else 256 * _MIB)
    queries, arrays = make_chain_arrays(sweep.shape, target, num_calls)
    programs = CompileAhead(
        {
            name: lambda tiling=tiling: jax.jit(
                pallas_chain(sweep.shape, tiling, interpret=target.interpret)
            ).lower(queries, arrays)
            for name, tiling in todo.items()
        },
        threads=1 if recorder.serial else target.compile_threads,
    )
    found = {}
    for name, tiling in todo.items():
        fields = recorder.measure(
            name,
            lambda name=name: time_tile(sweep, programs, name, queries, arrays),
            least_s=2.0,
        )
        if fields is not None:
            found[fields["seconds"]] = tiling
    if found:
        recorder.measure(
            f"best of {sweep.name}" + " again" * recorder.serial,
            lambda: best_of(sweep, found, target),
            least_s=0.0,
        )


def time_tile(
    sweep: Sweep,
    programs: CompileAhead,
    name: str,
    queries: jax.Array,
    arrays: ChainArrays,
) -> Mapping[str, Any]:
    """Time one tile.

    Raises:
      SkipCaseError: it does not compile here, which is no fault of the kernel.
    """
    try:
        program, compile_s = programs.get(name)
    except Exception as error:  # whatever a compiler says to an unusual tile
        raise SkipCaseError(f"does not compile: {error}"[:300]) from error
    timing = time_chain(
        lambda state: program(state, arrays),
        queries,
        calls=len(arrays.tables),
        samples=5,
        sample_s=0.01,
    )
    work = sweep.shape.work
    return {
        **timing.fields(),
        "bytes_per_s": work.bytes_moved / timing.seconds,
        "flops_per_s": work.flops / timing.seconds,
        "compile_s": compile_s,
        "summary": f"{timing.seconds * 1e6:.1f} us, {_rate(sweep, timing.seconds)}",
    }


def best_of(
    sweep: Sweep, found: Mapping[float, Tiling], target: Target
) -> Mapping[str, Any]:
    """Return the fastest tile, as an entry of the table where the table holds it."""
    seconds = min(found)
    tile = getattr(found[seconds], sweep.launch)
    if sweep.what == "splits":
        usual = _usual(sweep, target).decode.num_splits
        said = f"{tile.num_splits} splits; an engine would use {usual}"
        return {"num_splits": tile.num_splits, "usual": usual, "summary": said}
    text = entry_text(sweep, tile, seconds, target)
    return {"entry": text, "summary": text}


def entry_text(sweep: Sweep, tile: Tile, seconds: float, target: Target) -> str:
    """Write a tile as an entry of `kernels_pallas.paged_attention.tuning_table`."""
    heads = sweep.shape.heads
    entry = Entry(
        launch="decode" if sweep.launch == "decode" else "prefill",
        architectures=(target.gpu.architecture,),
        dtypes=HALF,
        max_head_dim=heads.head_dim,
        max_group=heads.group,
        tile=dataclasses.replace(tile, num_splits=1),
        provenance=f"timed on {target.device.device_kind}, jax {jax.__version__}: "
        f"{_rate(sweep, seconds)} at {sweep.shape.rows} x {sweep.shape.context}",
    )
    return repr(entry)


def tiling_of(sweep: Sweep, sizes: Iterable[int], target: Target) -> Tiling:
    """Return what an engine would use, but for the sizes that vary."""
    usual = _usual(sweep, target)
    if sweep.what == "splits":
        (splits,) = sizes
        tile = dataclasses.replace(usual.decode, num_splits=splits)
    else:
        rows, keys, warps, stages = sizes
        splits = getattr(usual, sweep.launch).num_splits
        tile = Tile(rows, keys, splits, warps, stages)
    return dataclasses.replace(usual, **{sweep.launch: tile})


def _usual(sweep: Sweep, target: Target) -> Tiling:
    shape = sweep.shape
    return target.tiling(
        heads=shape.heads.num_heads,
        kv_heads=shape.heads.num_kv_heads,
        head_dim=shape.heads.head_dim,
        dtype="bfloat16",
        num_tokens=shape.rows * shape.queries,
        num_rows=shape.rows,
    )


def _rate(sweep: Sweep, seconds: float) -> str:
    work = sweep.shape.work
    if sweep.launch == "decode":
        return f"{work.bytes_moved / seconds / 1e12:.2f} TB/s"
    return f"{work.flops / seconds / 1e12:.0f} TFLOP/s"
