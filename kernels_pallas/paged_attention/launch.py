"""Launches of the attention kernel, and how they share one buffer."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from kernels_pallas.paged_attention.kernel import attention_kernel
from kernels_pallas.paged_attention.merge import merge_splits, whole
from kernels_pallas.paged_attention.problem import Operands, Problem
from kernels_pallas.paged_attention.tiling import Tiling


def attend_all(
    operands: Operands, problem: Problem, tiling: Tiling, *, interpret: bool
) -> jax.Array:
    """Attend for rows with one query, then in the same buffer for all others.

    Returns:
      The attended values [T, H, D], zeros for padding.
    """
    problem = dataclasses.replace(problem, tile=tiling.decode)
    attended = attend_single(operands, problem, interpret=interpret)
    if problem.single_token_rows:
        return attended
    problem = dataclasses.replace(problem, tile=tiling.prefill, tiled=True)
    operands = operands._replace(attended=attended)
    grid = (operands.tile_rows.shape[0], operands.keys.shape[1], 1)
    return launch(operands, problem, grid, like(attended), interpret=interpret)


def attend_single(
    operands: Operands, problem: Problem, *, interpret: bool
) -> jax.Array:
    """Attend for the rows with one query.

    Returns:
      The attended values [T, H, D]; anything for tokens of other rows.
    """
    operands = operands._replace(tile_rows=None, tile_tokens=None)
    num_heads, head_dim = operands.queries.shape[1:]
    num_rows, num_kv_heads = operands.seq_lens.shape[0], operands.keys.shape[1]
    splits = problem.tile.num_splits
    grid = (num_rows, num_kv_heads, splits)
    run = functools.partial(launch, operands, problem, grid, interpret=interpret)
    if splits == 1:
        return run(like(operands.queries))
    parts = (splits, num_rows, num_heads)
    attended, log_sums = run(
        (
            jax.ShapeDtypeStruct((*parts, head_dim), jnp.float32),
            jax.ShapeDtypeStruct(parts, jnp.float32),
        )
    )
    return merge_splits(
        attended,
        log_sums,
        operands.query_start_loc,
        like(operands.queries),
        single_token_rows=problem.single_token_rows,
        interpret=interpret,
    )


def like(array: jax.Array) -> jax.ShapeDtypeStruct:
    """Return the shape and dtype of an array."""
    return jax.ShapeDtypeStruct(array.shape, array.dtype)


def launch(
    operands: Operands,
    problem: Problem,
    grid: tuple[int, ...],
    outputs: Any,
    *,
    interpret: bool,
) -> Any:
    """Launch the kernel; its compiler parameters are what selects Triton."""
    last = len(jax.tree.leaves(operands)) - 1
    return pl.pallas_call(
        functools.partial(attention_kernel, problem=problem),
        out_shape=outputs,
        grid=grid,
        in_specs=[jax.tree.map(whole, operands)],
        out_specs=jax.tree.map(whole, outputs),
        input_output_aliases={} if operands.attended is None else {last: 0},
        compiler_params=plt.CompilerParams(
            num_warps=problem.tile.num_warps, num_stages=problem.tile.num_stages
        ),
        interpret=interpret,
        name=f"paged_attention_{'prefill' if problem.tiled else 'decode'}",
    )(operands)
