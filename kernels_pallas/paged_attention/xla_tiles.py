"""Rows with several queries: one row after another, in tiles of queries."""

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

TILE_QUERIES = 32  # queries of one row that run together
CHUNK_TOKENS = 128  # keys that one iteration gathers


def attend_tiles(
    queries: Float[Array, "T H D"],
    out: Float[Array, "T H D"],
    cache: tuple[Float[Array, "N K B D"], Float[Array, "N K B D"], Int[Array, "R P"]],
    rows: tuple[Int[Array, " R+1"], Int[Array, " R"], Int[Array, ""]],
    *,
    sliding_window: int | None,
) -> Float[Array, "T H D"]:
    """Attend with the queries of rows that have several.

    A tile may reach past its row's queries. What it writes there is overwritten
    by the rows after it, which run later, or lies in the padding.

    Args:
      queries: scaled, in float32.
      out: what the rows before have attended to already.
      cache: keys, values and the rows' tables.
      rows: first query of each row, tokens of each row, and the first row to run.
      sliding_window: last positions that a query sees, itself included.

    Returns:
      `out` with these rows' values; whatever it is for padding queries.
    """
    keys, values, tables = cache
    query_start_loc, seq_lens, first_row = rows
    num_tokens = len(queries)
    tile = min(TILE_QUERIES, num_tokens)
    head_blocks = find_head_blocks(tables, keys, max(1, CHUNK_TOKENS // keys.shape[2]))
    queries = jnp.pad(queries, ((0, tile), (0, 0), (0, 0)))
    out = jnp.pad(out, ((0, tile), (0, 0), (0, 0)))
    num_rows = jnp.sum(query_start_loc[1:] > query_start_loc[:-1], dtype=jnp.int32)

    def run_row(row, out):
        begin, end = query_start_loc[row], query_start_loc[row + 1]
        row_blocks = head_blocks[row]

        def run_tile(index, out):
            start = begin + index * tile
            q = lax.dynamic_slice_in_dim(queries, start, tile)
            query = start + jnp.arange(tile, dtype=jnp.int32)
            # Queries past the row's end see what its last query sees.
            position = seq_lens[row] - end + jnp.minimum(query, end - 1)
            attended = _attend_tile(
                q, row_blocks, position, keys, values, sliding_window=sliding_window
            )
            return lax.dynamic_update_slice_in_dim(out, attended, start, axis=0)

        num_tiles = lax.div(end - begin + tile - 1, np.int32(tile))
        return lax.fori_loop(0, num_tiles, run_tile, out)

    return lax.fori_loop(first_row, num_rows, run_row, out)[:num_tokens]


def _attend_tile(
    queries: Float[Array, "U H D"],
    head_blocks: Int[Array, "K Q"],
    position: Int[Array, " U"],
    keys: Float[Array, "N K B D"],
    values: Float[Array, "N K B D"],
    *,
    sliding_window: int | None,
) -> Float[Array, "U H D"]:
    """Attend with several queries of one row, chunk after chunk."""
    num_queries, num_heads, head_dim = queries.shape
    num_kv_heads, block_size = keys.shape[1:3]
    group = num_heads // num_kv_heads
    q = queries.reshape(num_queries, num_kv_heads, group, head_dim)
    q = q.transpose(1, 0, 2, 3).reshape(num_kv_heads, -1, head_dim)  # [K, U G, D]
    width = max(1, CHUNK_TOKENS // block_size)
    chunk = width * block_size

    def run_chunk(index, state):
        found = lax.dynamic_slice_in_dim(head_blocks, index * width, width, axis=1)
        k, v = gather_tokens(keys, found), gather_tokens(values, found)  # [K, C, D]
        key_position = index * chunk + jnp.arange(chunk, dtype=jnp.int32)
        seen = sees(key_position[None, :], position[:, None], sliding_window)
        scores = jnp.einsum("kqd,kcd->kqc", q, k, precision="highest")
        scores = scores.reshape(num_kv_heads, num_queries, group, chunk)
        maximum, factor, weights = online_softmax.rescale(
            state, scores, seen[None, :, None, :]
        )
        added = _weighted_values(weights, v, seen)
        return SoftmaxState(
            maximum,
            state.total * factor + jnp.sum(weights, axis=-1),
            state.values * factor[..., None] + added,
        )

    first, last = chunk_range(
        jnp.min(position) + 1, jnp.max(position) + 1, chunk, sliding_window
    )
    state = online_softmax.start((num_kv_heads, num_queries, group), head_dim)
    state = lax.fori_loop(first, last, run_chunk, state)
    attended = online_softmax.finish(state)  # [K, U, G, D]
    return attended.transpose(1, 0, 2, 3).reshape(queries.shape)


def _weighted_values(
    weights: Float[Array, "K U G C"],
    values: Float[Array, "K C D"],
    seen: Bool[Array, "U C"],
) -> Float[Array, "K U G D"]:
    """Sum the values that each query sees, and nothing of the others.

    A weight of zero is not enough: 0 x NaN is NaN. So values that are not finite
    are left out of the product, and turn the queries that do see them into NaN.
    """
    finite = jnp.all(jnp.isfinite(values), axis=-1)  # [K, C]
    num_kv_heads, num_queries, group, chunk = weights.shape
    summed = jnp.einsum(
        "kqc,kcd->kqd",
        weights.reshape(num_kv_heads, -1, chunk),
        jnp.where(finite[..., None], values, 0.0),
        precision="highest",
    ).reshape(num_kv_heads, num_queries, group, -1)
    spoilt = jnp.any(seen[None, :, :] & ~finite[:, None, :], axis=-1)  # [K, U]
    return jnp.where(spoilt[..., None, None], jnp.nan, summed)
