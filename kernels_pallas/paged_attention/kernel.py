"""The attention kernel: one program attends for a few queries of one row.

The queries of neighbouring tokens and of the heads that share a KV head are the
rows of one matrix, so that grouped heads load their keys once. Softmax is online,
in float32 and base 2. Keys are found through the block table, a tile at a time:
first the tiles that all queries see whole, without masks, then the others.
"""

import functools
import math
from typing import Any

import jax

# Interpret mode imports this, and on jax 0.11 and newer the import changes the key of
# every compiled program: done late, it would make them all compile again.
import jax.experimental.pallas.tpu
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from kernels_pallas.paged_attention.problem import Operands, Problem
from kernels_pallas.paged_attention.work import (
    Rows,
    Span,
    Work,
    find_rows,
    find_span,
    find_work,
)

LOG2_E = math.log2(math.e)
LN_2 = np.float32(math.log(2.0))
LOWEST = np.float32(-1e30)  # a score that weighs nothing, yet is no infinity


def attention_kernel(refs: Operands, *outputs: Any, problem: Problem) -> None:
    """Run one program of the grid (row or tile, KV head, split).

    With one split the output is what was attended, [T, H, D]. With more, each split
    has its own, [S, R, H, D], and the logarithm of its sum, [S, R, H]; both float32.
    A split without keys writes minus infinity and leaves its values alone.
    """
    work = find_work(refs, problem)

    @pl.when(work.is_real)
    def _():
        rows, span = find_rows(work, problem), find_span(work, problem)
        state = attend(refs, work, rows, span, problem)
        if problem.tile.num_splits == 1:
            store_whole(outputs[0], rows, state, problem)
        else:
            store_part(outputs, work, rows, span, state, problem)

    if problem.tiled:

        @pl.when((work.row < 0) & (work.token < problem.num_tokens))
        def _():
            store_zeros(outputs[0], find_rows(work, problem), problem)


def attend(
    refs: Operands, work: Work, rows: Rows, span: Span, problem: Problem
) -> tuple:
    """Return the state after all keys: attended values, maximum, total."""
    feature, mask = features(problem, rows.is_real)
    queries = load(
        refs.queries.at[rows.token[:, None], rows.head[:, None], feature], mask
    )
    step = functools.partial(add_tile, refs, work, rows, span, queries, problem)
    state = start(refs, work, rows, problem)
    whole = functools.partial(step, masked=False)
    state = lax.fori_loop(span.first, span.full, whole, state)
    return lax.fori_loop(
        span.full, span.last, functools.partial(step, masked=True), state
    )


def start(refs: Operands, work: Work, rows: Rows, problem: Problem) -> tuple:
    """Return the state before the first key.

    A sink is a key with a score and no value; the first split has seen it.
    """
    attended = jnp.zeros((problem.tile.rows, problem.width), jnp.float32)
    shape = (problem.tile.rows,)
    maximum, total = jnp.full(shape, LOWEST), jnp.zeros(shape, jnp.float32)
    if refs.sinks is None:
        return attended, maximum, total
    sinks = load(refs.sinks.at[rows.head], rows.is_real).astype(jnp.float32)
    is_first = jnp.broadcast_to(work.split == 0, shape)
    maximum = jnp.where(is_first, sinks * np.float32(LOG2_E), maximum)
    return attended, maximum, jnp.where(is_first, np.float32(1.0), total)


def add_tile(  # noqa: PLR0913, PLR0917 - the constants of the loop come first
    refs: Operands,
    work: Work,
    rows: Rows,
    span: Span,
    queries: jax.Array,
    problem: Problem,
    index: Any,
    state: tuple,
    *,
    masked: bool,
) -> tuple:
    """Return the state after the keys of one more tile."""
    attended, maximum, total = state
    column = lax.broadcasted_iota(jnp.int32, (problem.tile.keys,), 0)
    position = span.origin + index * problem.tile.keys + column
    is_real = position < span.end if masked else None
    block_size = jnp.int32(problem.block_size)
    table = refs.block_tables.at[work.row, lax.div(position, block_size)]
    at = (load(table, is_real), work.head, lax.rem(position, block_size))
    precision = exact(queries.dtype)
    keys = load_tile(refs.keys, at, is_real, problem).astype(queries.dtype)
    scores = plt.dot(queries, keys.T, precision=precision)
    if refs.key_scales is not None:
        scores *= load(refs.key_scales.at[at], is_real)[None, :]
    scores = scaled(scores, problem)
    sees = visible(position, rows, problem) if masked else None
    if sees is not None:
        scores = jnp.where(sees, scores, LOWEST)
    new_maximum = jnp.maximum(maximum, jnp.max(scores, axis=1))
    weights = jnp.exp2(scores - new_maximum[:, None])
    if sees is not None:
        weights = jnp.where(sees, weights, 0.0)  # where no key was seen before either
    factor = jnp.exp2(maximum - new_maximum)
    total = total * factor + jnp.sum(weights, axis=1)
    if refs.value_scales is not None:
        weights *= load(refs.value_scales.at[at], is_real)[None, :]
    values = load_tile(refs.values, at, is_real, problem).astype(queries.dtype)
    added = plt.dot(weights.astype(queries.dtype), values, precision=precision)
    return attended * factor[:, None] + added, new_maximum, total


def scaled(scores: jax.Array, problem: Problem) -> jax.Array:
    """Scale, cap, and take to base 2; the hyperbolic tangent by an exponential."""
    if problem.soft_cap is None:
        return scores * np.float32(problem.scale * LOG2_E)
    cap = problem.soft_cap
    power = jnp.exp2(scores * np.float32(2.0 * LOG2_E * problem.scale / cap))
    return (1.0 - 2.0 / (power + 1.0)) * np.float32(cap * LOG2_E)


def visible(position: jax.Array, rows: Rows, problem: Problem) -> jax.Array:
    """Return which keys (columns) each query (row) sees."""
    sees = position[None, :] <= rows.position[:, None]
    if problem.sliding_window is not None:
        sees &= position[None, :] > rows.position[:, None] - problem.sliding_window
    return sees


def exact(dtype: Any) -> lax.Precision | None:
    """Return the precision of a product: float32 would be TF32 on a GPU."""
    return lax.Precision.HIGHEST if dtype == jnp.float32 else None


def store_whole(out: Any, rows: Rows, state: tuple, problem: Problem) -> None:
    """Store what was attended; zeros where there is no key."""
    attended, _, total = state
    # A total that is not a number is not zero: it shows in the result.
    attended /= jnp.where(total == 0.0, 1.0, total)[:, None]
    feature, mask = features(problem, rows.is_real)
    at = out.at[rows.token[:, None], rows.head[:, None], feature]
    plt.store(at, attended.astype(out.dtype), mask=mask)


def store_part(
    outputs: Any, work: Work, rows: Rows, span: Span, state: tuple, problem: Problem
) -> None:
    """Store one split's result, for a merge."""
    attended, maximum, total = state
    has_keys = span.first < span.last
    log_sum = jnp.where(has_keys, (maximum + jnp.log2(total)) * LN_2, -jnp.inf)
    # Masked rows must not share an index with a real one: interpret mode writes the
    # old value there. So they run on into the rows after this one.
    row = work.row + (rows.token - work.token)
    plt.store(outputs[1].at[work.split, row, rows.head], log_sum, mask=rows.is_real)

    @pl.when(has_keys)
    def _():
        feature, mask = features(problem, rows.is_real)
        at = outputs[0].at[work.split, row[:, None], rows.head[:, None], feature]
        plt.store(at, attended / total[:, None], mask=mask)


def store_zeros(out: Any, rows: Rows, problem: Problem) -> None:
    """Store zeros for padding tokens."""
    feature, mask = features(problem, rows.is_real)
    zeros = jnp.zeros((problem.tile.rows, problem.width), out.dtype)
    plt.store(
        out.at[rows.token[:, None], rows.head[:, None], feature], zeros, mask=mask
    )


def load(ref: Any, mask: jax.Array | None) -> jax.Array:
    """Load, under a mask if there is one; zeros where it does not hold."""
    if mask is None:
        return plt.load(ref)
    return plt.load(ref, mask=mask, other=jnp.zeros((), ref.dtype))


def load_tile(ref: Any, at: tuple, is_real: Any, problem: Problem) -> jax.Array:
    """Load keys or values at (block, KV head, offset)."""
    block, head, offset = at
    feature, mask = features(problem, is_real)
    return load(ref.at[block[:, None], head, offset[:, None], feature], mask)


def features(problem: Problem, is_real: Any) -> tuple[jax.Array, jax.Array | None]:
    """Return the index of each feature, [1, D], and the mask of entries x features.

    `is_real` None stands for entries that are all real; the mask is None where there
    is nothing to mask.
    """
    feature = lax.broadcasted_iota(jnp.int32, (problem.width,), 0)[None, :]
    exists = None if problem.width == problem.head_dim else feature < problem.head_dim
    if is_real is None and exists is None:
        return feature, None
    if is_real is None:
        shape = (problem.tile.keys, problem.width)
        return feature, jnp.broadcast_to(feature < problem.head_dim, shape)
    mask = jnp.broadcast_to(is_real[:, None], (is_real.shape[0], problem.width))
    return feature, mask if exists is None else mask & exists
