"""Paged attention for XLA, without a kernel: the CPU's path.

Two loops over chunks of the block tables, both with bounds that are data, so that
short contexts cost little and no bucket of context lengths is needed. Rows with
one query run together, a group at a time; rows with more run one after another,
in tiles of queries. Gathering a whole table at once would be 3 times slower: its
large temporaries fault pages in again in each layer.
"""

import functools

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernels_pallas.paged_attention import online_softmax
from kernels_pallas.paged_attention.online_softmax import SoftmaxState

CHUNK_TOKENS = 128  # of the keys that one iteration gathers for each row
GROUP_ROWS = 32  # single-query rows that run together
TILE_QUERIES = 32  # queries of one row that run together


def xla_attention(  # noqa: PLR0913 - the arrays of a step
    queries: Float[Array, "T H D"],
    keys: Float[Array, "N K B D"],
    values: Float[Array, "N K B D"],
    block_tables: Int[Array, "R P"],
    query_start_loc: Int[Array, " R+1"],
    seq_lens: Int[Array, " R"],
    *,
    scale: float,
    sliding_window: int | None = None,
    single_token_rows: bool = False,
) -> Float[Array, "T H D"]:
    """Attend as `reference_attention` does; rows with one query come first.

    Args:
      queries: query heads of all rows.
      keys: cached keys.
      values: cached values.
      block_tables: block ids of each row.
      query_start_loc: first query of each row.
      seq_lens: tokens of each row, the step's own included.
      scale: factor on the scores.
      sliding_window: last positions that a query sees, itself included.
      single_token_rows: whether every row has one query, so that query i is row
        i's.

    Returns:
      The attended values; zeros for padding queries.
    """
    tables = _pad_tables(block_tables, keys.shape[2])
    scaled = queries.astype(jnp.float32) * np.float32(scale)
    attend = functools.partial(
        _attend_single, keys=keys, values=values, sliding_window=sliding_window
    )
    if single_token_rows:
        out = _in_groups(attend, scaled, tables, seq_lens)
        return out.astype(queries.dtype)
    counts = query_start_loc[1:] - query_start_loc[:-1]
    num_single = jnp.sum(counts == 1, dtype=jnp.int32)
    num_rows = jnp.sum(counts > 0, dtype=jnp.int32)
    out = _single_rows_first(attend, scaled, tables, seq_lens, num_single)
    out = _attend_long_rows(
        scaled,
        out,
        (keys, values, tables),
        (query_start_loc, seq_lens, num_single, num_rows),
        sliding_window=sliding_window,
    )
    return out.astype(queries.dtype)


def _pad_tables(tables: Int[Array, "R P"], block_size: int) -> Int[Array, "R Q"]:
    """Widen the tables to whole chunks, with the null block."""
    width = max(1, CHUNK_TOKENS // block_size)
    return jnp.pad(tables, ((0, 0), (0, -tables.shape[1] % width)))


def _in_groups(attend, queries, tables, seq_lens):
    """Run all rows, a static number of groups; small batches are one group."""
    num_rows = queries.shape[0]
    starts = range(0, num_rows, GROUP_ROWS)
    parts = [
        attend(
            queries[i : i + GROUP_ROWS],
            tables[i : i + GROUP_ROWS],
            seq_lens[i : i + GROUP_ROWS],
        )
        for i in starts
    ]
    return jnp.concatenate(parts, axis=0)


def _single_rows_first(attend, queries, tables, seq_lens, num_single):
    """Run the first `num_single` rows, whose queries are the first ones too."""
    size = min(GROUP_ROWS, queries.shape[0], tables.shape[0])

    def run_group(group, out):
        # The last group may reach back into the one before it, never past the end.
        start = jnp.minimum(group * size, min(queries.shape[0], tables.shape[0]) - size)
        rows = functools.partial(
            lax.dynamic_slice_in_dim, start_index=start, slice_size=size
        )
        is_single = start + jnp.arange(size, dtype=jnp.int32) < num_single
        lens = jnp.where(is_single, rows(seq_lens), 0)
        return lax.dynamic_update_slice_in_dim(
            out, attend(rows(queries), rows(tables), lens), start, axis=0
        )

    num_groups = lax.div(num_single + size - 1, np.int32(size))
    return lax.fori_loop(0, num_groups, run_group, jnp.zeros_like(queries))


def _attend_single(
    queries: Float[Array, "S H D"],
    tables: Int[Array, "S Q"],
    seq_lens: Int[Array, " S"],
    *,
    keys: Float[Array, "N K B D"],
    values: Float[Array, "N K B D"],
    sliding_window: int | None,
) -> Float[Array, "S H D"]:
    """Attend with one query a row, all rows together, chunk after chunk."""
    num_rows, num_heads, head_dim = queries.shape
    num_kv_heads, block_size = keys.shape[1:3]
    group = num_heads // num_kv_heads
    q = queries.reshape(num_rows, num_kv_heads, group, head_dim)
    width = max(1, CHUNK_TOKENS // block_size)
    chunk = width * block_size

    def run_chunk(index, state):
        ids = lax.dynamic_slice_in_dim(tables, index * width, width, axis=1)
        k, v = keys[ids], values[ids]  # [S, W, K, B, D]
        position = index * chunk + jnp.arange(chunk, dtype=jnp.int32)
        sees = _sees(position[None, :], seq_lens[:, None] - 1, sliding_window)
        by_block = sees.reshape(num_rows, width, block_size)
        scores = jnp.einsum(
            "rkgd,rwkbd->rkgwb", q, k, preferred_element_type=jnp.float32
        ).reshape(num_rows, num_kv_heads, group, chunk)
        maximum, factor, weights = online_softmax.rescale(
            state, scores, sees[:, None, None, :]
        )
        v = jnp.where(by_block[:, :, None, :, None], v, jnp.zeros_like(v))
        added = jnp.einsum(
            "rkgwb,rwkbd->rkgd",
            weights.reshape(num_rows, num_kv_heads, group, width, block_size),
            v.astype(jnp.float32),
        )
        return SoftmaxState(
            maximum,
            state.total * factor + jnp.sum(weights, axis=-1),
            state.values * factor[..., None] + added,
        )

    first, last = _chunk_range(
        jnp.min(seq_lens), jnp.max(seq_lens), chunk, sliding_window
    )
    state = online_softmax.start((num_rows, num_kv_heads, group), head_dim)
    state = lax.fori_loop(first, last, run_chunk, state)
    return online_softmax.finish(state).reshape(queries.shape)


def _attend_long_rows(queries, out, cache, rows, *, sliding_window):
    """Run the rows with several queries one by one, in tiles of queries.

    A tile may reach past its row's queries. What it writes there is overwritten
    by the rows after it, which run later, or lies in the padding.
    """
    keys, values, tables = cache
    query_start_loc, seq_lens, first_row, num_rows = rows
    tile = min(TILE_QUERIES, queries.shape[0])
    num_tokens = queries.shape[0]
    queries = jnp.pad(queries, ((0, tile), (0, 0), (0, 0)))
    out = jnp.pad(out, ((0, tile), (0, 0), (0, 0)))

    def run_row(row, out):
        begin, end = query_start_loc[row], query_start_loc[row + 1]
        table = tables[row]

        def run_tile(index, out):
            start = begin + index * tile
            q = lax.dynamic_slice_in_dim(queries, start, tile)
            query = start + jnp.arange(tile, dtype=jnp.int32)
            # Queries past the row's end see what its last query sees.
            position = seq_lens[row] - end + jnp.minimum(query, end - 1)
            attended = _attend_tile(
                q, table, position, keys, values, sliding_window=sliding_window
            )
            return lax.dynamic_update_slice_in_dim(out, attended, start, axis=0)

        num_tiles = lax.div(end - begin + tile - 1, np.int32(tile))
        return lax.fori_loop(0, num_tiles, run_tile, out)

    out = lax.fori_loop(first_row, num_rows, run_row, out)[:num_tokens]
    is_real = jnp.arange(num_tokens, dtype=jnp.int32) < query_start_loc[-1]
    return jnp.where(is_real[:, None, None], out, 0.0)


def _attend_tile(
    queries: Float[Array, "U H D"],
    table: Int[Array, " Q"],
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
    width = max(1, CHUNK_TOKENS // block_size)
    chunk = width * block_size

    def run_chunk(index, state):
        ids = lax.dynamic_slice_in_dim(table, index * width, width)
        k, v = _by_head(keys[ids]), _by_head(values[ids])  # [K, C, D]
        key_position = index * chunk + jnp.arange(chunk, dtype=jnp.int32)
        sees = _sees(key_position[None, :], position[:, None], sliding_window)
        scores = jnp.einsum("ukgd,kcd->kugc", q, k, preferred_element_type=jnp.float32)
        maximum, factor, weights = online_softmax.rescale(
            state, scores, sees[None, :, None, :]
        )
        added = _weighted_values(weights, v.astype(jnp.float32), sees)
        return SoftmaxState(
            maximum,
            state.total * factor + jnp.sum(weights, axis=-1),
            state.values * factor[..., None] + added,
        )

    first, last = _chunk_range(
        jnp.min(position) + 1, jnp.max(position) + 1, chunk, sliding_window
    )
    state = online_softmax.start((num_kv_heads, num_queries, group), head_dim)
    state = lax.fori_loop(first, last, run_chunk, state)
    attended = online_softmax.finish(state)  # [K, U, G, D]
    return attended.transpose(1, 0, 2, 3).reshape(queries.shape)


def _weighted_values(
    weights: Float[Array, "K U G C"],
    values: Float[Array, "K C D"],
    sees: Bool[Array, "U C"],
) -> Float[Array, "K U G D"]:
    """Sum the values that each query sees, and nothing of the others.

    A weight of zero is not enough: 0 x NaN is NaN. So values that are not finite
    are left out of the product, and turn the queries that do see them into NaN.
    """
    finite = jnp.all(jnp.isfinite(values), axis=-1)  # [K, C]
    summed = jnp.einsum(
        "kugc,kcd->kugd", weights, jnp.where(finite[..., None], values, 0.0)
    )
    spoilt = jnp.any(sees[None, :, :] & ~finite[:, None, :], axis=-1)  # [K, U]
    return jnp.where(spoilt[..., None, None], jnp.nan, summed)


def _sees(
    key_position: Int[Array, "1 C"],
    position: Int[Array, "U 1"],
    sliding_window: int | None,
) -> Bool[Array, "U C"]:
    sees = key_position <= position
    if sliding_window is not None:
        sees &= key_position > position - sliding_window
    return sees


def _chunk_range(shortest, longest, chunk: int, sliding_window: int | None):
    """Chunks that hold a position which some query sees."""
    last = lax.div(longest + chunk - 1, np.int32(chunk))
    if sliding_window is None:
        return np.int32(0), last
    first = lax.div(jnp.maximum(shortest - sliding_window, 0), np.int32(chunk))
    return first, last


def _by_head(blocks: Float[Array, "W K B D"]) -> Float[Array, "K C D"]:
    width, num_kv_heads, block_size, head_dim = blocks.shape
    return blocks.transpose(1, 0, 2, 3).reshape(
        num_kv_heads, width * block_size, head_dim
    )
