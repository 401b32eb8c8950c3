"""Rows with one query each: groups of rows, chunk of keys after chunk."""

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernels_pallas.paged_attention import online_softmax
from kernels_pallas.paged_attention.online_softmax import SoftmaxState
from kernels_pallas.paged_attention.xla_chunks import (
    chunk_range,
    find_head_blocks,
    gather_tokens,
    sees,
)

# Rows that run together. More of them would read on until the longest has ended, and
# what they gather would fall out of a core's own cache.
GROUP_ROWS = 8
CHUNK_TOKENS = 64  # keys that one iteration gathers for each of as many rows
FEW_ROWS_CHUNK_TOKENS = 128  # with fewer rows an iteration would do too little

Cache = tuple[
    Float[Array, "N K B D"], Float[Array, "N K B D"], Int[Array, "R ..."]
]  # keys, values, block tables or head blocks


def attend_rows(
    queries: Float[Array, "R H D"],
    cache: Cache,
    seq_lens: Int[Array, " R"],
    num_rows: Int[Array, ""],
    *,
    sliding_window: int | None,
) -> Float[Array, "R H D"]:
    """Attend with the one query of each row.

    Args:
      queries: scaled, in float32.
      cache: keys, values and the rows' tables.
      seq_lens: tokens of each row.
      num_rows: rows that count, the first ones; best sorted by length.
      sliding_window: last positions that a query sees, itself included.

    Returns:
      The attended values; zeros for rows that do not count.
    """
    keys, values, tables = cache
    size = min(GROUP_ROWS, len(queries))
    chunk = CHUNK_TOKENS if size == GROUP_ROWS else FEW_ROWS_CHUNK_TOKENS
    width = max(1, chunk // keys.shape[2])
    missing = -len(queries) % size
    padded = jnp.pad(queries, ((0, missing), (0, 0), (0, 0)))
    head_blocks = find_head_blocks(jnp.pad(tables, ((0, missing), (0, 0))), keys, width)
    counts = jnp.arange(len(padded), dtype=jnp.int32) < num_rows
    lens = jnp.where(counts, jnp.pad(seq_lens, (0, missing)), 0)

    def run_group(group, out):
        start = group * size
        attended = _attend_group(
            lax.dynamic_slice_in_dim(padded, start, size),
            (keys, values, lax.dynamic_slice_in_dim(head_blocks, start, size)),
            lax.dynamic_slice_in_dim(lens, start, size),
            width=width,
            sliding_window=sliding_window,
        )
        return lax.dynamic_update_slice_in_dim(out, attended, start, axis=0)

    num_groups = lax.div(num_rows + size - 1, np.int32(size))
    out = lax.fori_loop(0, num_groups, run_group, jnp.zeros_like(padded))
    return out[: len(queries)]


def _attend_group(
    queries: Float[Array, "S H D"],
    cache: Cache,
    lens: Int[Array, " S"],
    *,
    width: int,
    sliding_window: int | None,
) -> Float[Array, "S H D"]:
    keys, values, head_blocks = cache
    num_rows, num_heads, head_dim = queries.shape
    num_kv_heads, block_size = keys.shape[1:3]
    group = num_heads // num_kv_heads
    q = queries.reshape(num_rows, num_kv_heads, group, head_dim)
    chunk = width * block_size

    def run_chunk(index, state):
        found = lax.dynamic_slice_in_dim(head_blocks, index * width, width, axis=2)
        k, v = gather_tokens(keys, found), gather_tokens(values, found)
        position = index * chunk + jnp.arange(chunk, dtype=jnp.int32)
        seen = sees(position[None, :], lens[:, None] - 1, sliding_window)  # [S, C]
        scores = jnp.einsum("rkgd,rkcd->rkgc", q, k, precision="highest")
        return _add_chunk(state, scores, seen, v)

    first, last = chunk_range(jnp.min(lens), jnp.max(lens), chunk, sliding_window)
    state = online_softmax.start((num_rows, num_kv_heads, group), head_dim)
    state = lax.fori_loop(first, last, run_chunk, state)
    return online_softmax.finish(state).reshape(queries.shape)


def _add_chunk(
    state: SoftmaxState,
    scores: Float[Array, "S K G C"],
    seen: Bool[Array, "S C"],
    values: Float[Array, "S K C D"],
) -> SoftmaxState:
    maximum, factor, weights = online_softmax.rescale(
        state, scores, seen[:, None, None, :]
    )
    # A weight of zero is not enough where the value is no number.
    values = jnp.where(seen[:, None, :, None], values, 0.0)
    added = jnp.einsum("rkgc,rkcd->rkgd", weights, values, precision="highest")
    return SoftmaxState(
        maximum,
        state.total * factor + jnp.sum(weights, axis=-1),
        state.values * factor[..., None] + added,
    )
