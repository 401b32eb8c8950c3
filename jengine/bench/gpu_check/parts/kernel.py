"""The attention kernel against float64, over a cache whose unread parts are poison.

Twelve shapes in bfloat16, then the same in every other dtype. A kernel that reads
what it may not read gives NaN, or an illegal address and the end of the process.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jengine.bench.gpu_check.attention_case import (
    AttentionCase,
    StepArrays,
    make_arrays,
)
from jengine.bench.gpu_check.attention_oracle import expected_attention
from jengine.bench.gpu_check.cache_write import WriteShape, check_write
from jengine.bench.gpu_check.compile_ahead import CompileAhead
from jengine.bench.gpu_check.recorder import CheckError, Recorder, SkipCaseError
from jengine.bench.gpu_check.target import Target, find_target
from kernels_pallas.paged_attention import attention_metadata, pallas_attention

_RAGGED = ((0, 1), (15, 1), (199, 1), (0, 37), (128, 5), (236, 64), (76, 2))
_LONG = ((0, 1), (1, 1), (15, 1), (16, 1), (999, 1), (4095, 1))

CASES = (
    AttentionCase(name="decode", rows=_LONG),
    AttentionCase(
        name="decode, one row of 16k", rows=((16383, 1),), heads=8, kv_heads=2
    ),
    AttentionCase(name="prefill", rows=((0, 300), (0, 129)), block_size=32),
    AttentionCase(name="mixed", rows=_RAGGED),
    AttentionCase(name="chunk after 2k", rows=((2000, 200),)),
    AttentionCase(name="group of 1", rows=_RAGGED, heads=4, kv_heads=4),
    AttentionCase(name="group of 7", rows=_RAGGED, heads=28, kv_heads=4, head_dim=64),
    AttentionCase(name="group of 16", rows=_RAGGED, heads=16, kv_heads=1, block_size=8),
    AttentionCase(name="head of 80", rows=_RAGGED, heads=8, kv_heads=2, head_dim=80),
    AttentionCase(
        name="head of 256", rows=_RAGGED, heads=8, head_dim=256, block_size=128
    ),
    AttentionCase(name="window of 40", rows=(*_LONG, (500, 70)), sliding_window=40),
    AttentionCase(name="cap and sinks", rows=_RAGGED, soft_cap=5.0, sinks=True),
)

_SMALL: Mapping[str, Any] = {"heads": 4, "kv_heads": 2, "head_dim": 16}
SMOKE = (
    (AttentionCase(name="decode", rows=((0, 1), (40, 1)), **_SMALL), "bfloat16"),
    (
        AttentionCase(
            name="cap and sinks",
            rows=((3, 1), (0, 20)),
            soft_cap=5.0,
            sinks=True,
            sliding_window=9,
            **_SMALL,
        ),
        "int8",
    ),
)

WRITES = (
    WriteShape(tokens=70, kv_heads=8, head_dim=128, num_blocks=64),
    WriteShape(tokens=70, kv_heads=2, head_dim=80, num_blocks=64, dtype="float32"),
)
SMOKE_WRITES = (WriteShape(tokens=5, kv_heads=2, head_dim=16, num_blocks=4),)

# ||out - expected|| / ||expected|| that rounding may make. One-byte caches are exact
# up to the products, which are bfloat16.
TOLERANCES: Mapping[str, float] = {
    "bfloat16": 1e-2,
    "float32": 1e-5,
    "float16": 2e-3,
    "float8_e4m3fn": 1e-2,
    "int8": 1e-2,
    "float8_e5m2": 1e-2,
}


def run(recorder: Recorder) -> None:
    """Check every shape in every dtype."""
    target = find_target()
    pairs = SMOKE if recorder.smoke else [(c, d) for d in TOLERANCES for c in CASES]
    named = {f"{case.name}, {dtype}": (case, dtype) for case, dtype in pairs}
    todo = {name: pair for name, pair in named.items() if not recorder.is_done(name)}
    # Of the cases that are compiled ahead; of all at once they would take minutes.
    arrays = functools.lru_cache(maxsize=16)(make_arrays)
    programs = CompileAhead(
        {
            name: lambda pair=pair: lower(pair[0], arrays(*pair), target)
            for name, pair in todo.items()
        },
        threads=1 if recorder.serial else target.compile_threads,
    )
    for name, (case, dtype) in todo.items():
        recorder.measure(
            name,
            lambda name=name, case=case, dtype=dtype: check(
                case, arrays(case, dtype), dtype, programs, name, target
            ),
            least_s=2.0,
        )
    for shape in SMOKE_WRITES if recorder.smoke else WRITES:
        recorder.measure(
            f"write, head of {shape.head_dim}, {shape.dtype}",
            lambda shape=shape: check_write(shape, interpret=target.interpret),
        )


def check(
    case: AttentionCase,
    arrays: StepArrays,
    dtype: str,
    programs: CompileAhead,
    name: str,
    target: Target,
) -> Mapping[str, Any]:
    """Run one case and compare.

    Raises:
      CheckError: the kernel is wrong.
      SkipCaseError: the card has no such dtype.
    """
    if dtype == "float8_e4m3fn" and target.gpu.architecture < "sm_89":
        raise SkipCaseError(f"{target.gpu.architecture} does not convert {dtype}")
    program, compile_s = programs.get(name)
    found = np.asarray(program(jax.tree.map(jnp.asarray, arrays)))
    found = found[: case.num_tokens].astype(np.float64)
    expected = expected_attention(case, arrays)
    error = float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
    fields = {
        "relative_error": error,
        "largest_error": float(np.abs(found - expected).max()),
        "tolerance": TOLERANCES[dtype],
        "compile_s": compile_s,
    }
    if not error <= TOLERANCES[dtype]:  # NaN is no pass
        wrong = np.abs(found - expected).max(axis=(1, 2))
        worst = int(np.argmax(np.where(np.isnan(wrong), np.inf, wrong)))
        raise CheckError(
            f"relative error {error:.1e} > {TOLERANCES[dtype]:.0e}, worst in token "
            f"{worst} of {case.num_tokens}",
            **fields,
        )
    return {**fields, "summary": f"relative error {error:.1e}"}


def lower(case: AttentionCase, arrays: StepArrays, target: Target) -> Any:
    """Lower the kernel for one step, with the tiles that an engine would use."""
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), arrays)
    return jax.jit(attention_program(case, arrays, target)).lower(shapes)


def attention_program(
    case: AttentionCase, arrays: StepArrays, target: Target
) -> Callable[[StepArrays], jax.Array]:
    """Return a function from a step's arrays to what was attended."""
    num_tokens, num_rows = arrays.queries.shape[0], arrays.seq_lens.shape[0]
    single = case.has_single_token_rows
    group = case.heads // case.kv_heads
    tiling = target.tiling(
        heads=case.heads,
        kv_heads=case.kv_heads,
        head_dim=case.head_dim,
        dtype=str(arrays.keys.dtype),
        num_tokens=num_tokens,
        num_rows=num_rows,
    )

    def attend(step: StepArrays) -> jax.Array:
        metadata = attention_metadata(
            step.query_start_loc,
            num_tokens=num_tokens,
            group=group,
            tiling=tiling,
            single_token_rows=single,
        )
        return pallas_attention(
            *step[:6],
            metadata,
            scale=case.scale,
            tiling=tiling,
            sliding_window=case.sliding_window,
            soft_cap=case.soft_cap,
            sinks=step.sinks,
            key_scales=step.key_scales,
            value_scales=step.value_scales,
            single_token_rows=single,
            interpret=target.interpret,
        )

    return attend
