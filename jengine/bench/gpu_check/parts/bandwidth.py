"""How much of the card the attention kernel uses, beside plain copies and products.

Decode is bound by the keys and values that it reads, prefill by its products. Shapes
are those of Llama-3.1-8B: 32 query heads, 8 KV heads of 128.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

from jengine.bench.gpu_check.arithmetic import Ceiling, Heads
from jengine.bench.gpu_check.attention_chain import (
    ChainArrays,
    ChainShape,
    make_chain_arrays,
    pallas_chain,
    xla_chain,
)
from jengine.bench.gpu_check.cache_write import WriteShape, time_write
from jengine.bench.gpu_check.ceilings import (
    time_copy,
    time_product,
    time_read,
    time_update,
)
from jengine.bench.gpu_check.recorder import Recorder
from jengine.bench.gpu_check.target import Target, find_target
from jengine.bench.gpu_check.timing import Timing, time_chain

_HEADS = Heads(32, 8, 128)
_MIB = 2**20


class Sizes(NamedTuple):
    """What is measured.

    Attributes:
      copy_bytes: of the array that is copied.
      product: rows of the matrices that are multiplied.
      cache_bytes: read by attention before it comes to the same block again.
      decodes: steps of one token a row.
      prefills: steps of many.
      xla: steps that the XLA path runs as well.
      writes: of new keys and values into the cache.
    """

    copy_bytes: int
    product: int
    cache_bytes: int
    decodes: tuple[ChainShape, ...]
    prefills: tuple[ChainShape, ...]
    xla: tuple[ChainShape, ...]
    writes: tuple[WriteShape, ...]


FULL = Sizes(
    copy_bytes=2048 * _MIB,
    product=8192,
    cache_bytes=256 * _MIB,  # an H200 has 50 MiB of cache
    decodes=(
        ChainShape(64, 4096, 1, _HEADS),
        ChainShape(8, 4096, 1, _HEADS),
        ChainShape(1, 16384, 1, _HEADS),
        ChainShape(1, 1024, 1, _HEADS),
    ),
    prefills=(ChainShape(1, 4096, 4096, _HEADS), ChainShape(1, 8192, 2048, _HEADS)),
    xla=(ChainShape(8, 4096, 1, _HEADS),),
    writes=tuple(WriteShape(tokens, 8, 128, 8192) for tokens in (64, 2048)),
)
_SMALL = Heads(4, 2, 16)
SMOKE = Sizes(
    copy_bytes=_MIB,
    product=64,
    cache_bytes=1,
    decodes=(ChainShape(2, 40, 1, _SMALL),),
    prefills=(ChainShape(1, 40, 24, _SMALL),),
    xla=(ChainShape(2, 40, 1, _SMALL),),
    writes=(WriteShape(5, 2, 16, 4),),
)


def run(recorder: Recorder) -> None:
    """Measure the ceilings, then attention as a share of them."""
    sizes = SMOKE if recorder.smoke else FULL
    target = find_target()
    ceiling = _measure_ceiling(recorder, sizes, target)
    for shape in (*sizes.decodes, *sizes.prefills):
        recorder.measure(
            f"pallas, {name_of(shape)}",
            lambda shape=shape: measure(
                shape, _pallas(shape, target), target, sizes, ceiling
            ),
            least_s=3.0,
        )
    for shape in sizes.xla:
        recorder.measure(
            f"xla, {name_of(shape)}",
            lambda shape=shape: measure(
                shape, xla_chain(shape), target, sizes, ceiling
            ),
            least_s=3.0,
        )
    for write in sizes.writes:
        for backend in ("pallas", "scatter"):
            recorder.measure(
                f"write of {write.tokens} tokens, {backend}",
                lambda write=write, backend=backend: measure_write(
                    write, backend, target
                ),
                least_s=2.0,
            )


def measure_write(shape: WriteShape, backend: str, target: Target) -> Mapping[str, Any]:
    """Time the write of keys and values into one layer's cache."""
    timing = time_write(shape, backend, target)
    return {**timing.fields(), "summary": f"{timing.seconds * 1e6:.1f} us a layer"}


def measure(
    shape: ChainShape,
    chain: Callable[[jax.Array, ChainArrays], jax.Array],
    target: Target,
    sizes: Sizes,
    ceiling: Ceiling,
) -> Mapping[str, Any]:
    """Time one shape; compilation is apart."""
    num_calls = shape.num_calls(sizes.cache_bytes)
    queries, arrays = make_chain_arrays(shape, target, num_calls)
    timing, compile_s = time_program(chain, queries, arrays)
    return {**describe(shape, timing, ceiling), "compile_s": compile_s}


def time_program(
    chain: Callable[[jax.Array, ChainArrays], jax.Array],
    queries: jax.Array,
    arrays: ChainArrays,
) -> tuple[Timing, float]:
    """Compile a chain and time one call of it; return seconds of both."""
    lowered = jax.jit(chain).lower(queries, arrays)
    start = time.perf_counter()
    program = lowered.compile()
    compile_s = time.perf_counter() - start
    timing = time_chain(
        lambda state: program(state, arrays), queries, calls=len(arrays.tables)
    )
    return timing, compile_s


def describe(shape: ChainShape, timing: Timing, ceiling: Ceiling) -> dict[str, Any]:
    """Return the fields of a record: rates, and shares of what the card does."""
    work = shape.work
    bytes_per_s = work.bytes_moved / timing.seconds
    flops_per_s = work.flops / timing.seconds
    if shape.queries == 1:
        share = bytes_per_s / ceiling.bytes_per_s
        said = f"{bytes_per_s / 1e12:.2f} TB/s, {share:.0%} of the copy"
    else:
        share = flops_per_s / ceiling.flops_per_s
        said = f"{flops_per_s / 1e12:.0f} TFLOP/s, {share:.0%} of the product"
    return {
        **timing.fields(),
        "bytes": work.bytes_moved,
        "flops": work.flops,
        "bytes_per_s": bytes_per_s,
        "flops_per_s": flops_per_s,
        "share": share,
        "summary": f"{said}, {timing.seconds * 1e6:.1f} us",
    }


def name_of(shape: ChainShape) -> str:
    """Name a shape as people do."""
    if shape.queries == 1:
        return f"decode {shape.rows} x {shape.context}"
    before = shape.context - shape.queries
    return f"prefill {shape.rows} x {shape.queries}" + (
        f" after {before}" if before else ""
    )


def _pallas(
    shape: ChainShape, target: Target
) -> Callable[[jax.Array, ChainArrays], jax.Array]:
    tiling = target.tiling(
        heads=shape.heads.num_heads,
        kv_heads=shape.heads.num_kv_heads,
        head_dim=shape.heads.head_dim,
        dtype="bfloat16",
        num_tokens=shape.rows * shape.queries,
        num_rows=shape.rows,
    )
    return pallas_chain(shape, tiling, interpret=target.interpret)


def _measure_ceiling(recorder: Recorder, sizes: Sizes, target: Target) -> Ceiling:
    """Measure the card; where a rate is not to be had, shares of it are 0."""
    size, product = sizes.copy_bytes, sizes.product
    copy = _rate(recorder, "copy", 2 * size, lambda: time_copy(target, size))
    update = _rate(recorder, "update", 2 * size, lambda: time_update(target, size))
    _rate(recorder, "read", size, lambda: time_read(target, size))
    flops = 2 * product**3
    products = _rate(recorder, "product", flops, lambda: time_product(target, product))
    return Ceiling(max(copy, update) or float("inf"), products or float("inf"))


def _rate(
    recorder: Recorder, name: str, amount: int, time_it: Callable[[], Timing]
) -> float:
    """Record bytes, or operations, a second; 0 if they could not be measured."""
    unit = "flops" if name == "product" else "bytes"

    def run_it() -> Mapping[str, Any]:
        timing = time_it()
        rate = amount / timing.seconds
        said = f"{rate / 1e12:.2f} T{'FLOP' if unit == 'flops' else 'B'}/s"
        return {unit: amount, f"{unit}_per_s": rate, **timing.fields(), "summary": said}

    # A process that takes over from another one does not know what that one measured.
    fields = recorder.measure(name + " again" * recorder.serial, run_it)
    return 0.0 if fields is None else fields[f"{unit}_per_s"]
