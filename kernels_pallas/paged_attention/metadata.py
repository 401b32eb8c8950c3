"""Which program of the prefill launch does what: computed once a step."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from kernels_pallas.paged_attention.tiling import Tiling

PADDING = -1  # instead of a row


class AttentionMetadata(NamedTuple):
    """The tiles of the prefill launch; empty where every row has one query.

    A tile is a few neighbouring tokens of one row. Tiles of padding tokens have no
    row: their programs write zeros. Tiles without a token start past the last one.

    Attributes:
      tile_rows: row of each tile, or -1.
      tile_tokens: first token of each tile.
    """

    tile_rows: Int[Array, " W"]
    tile_tokens: Int[Array, " W"]


def attention_metadata(
    query_start_loc: Int[Array, " edges"],
    *,
    num_tokens: int,
    group: int,
    tiling: Tiling,
    single_token_rows: bool = False,
) -> AttentionMetadata:
    """Cut the queries of a step into tiles, without a loop on the device.

    Args:
      query_start_loc: first query of each row.
      num_tokens: tokens of the step, padded.
      group: query heads of one KV head.
      tiling: the tiles that `pallas_attention` will be called with.
      single_token_rows: whether every row has one query.

    Returns:
      The tiles, those with the most keys of each row first: programs start in this
      order, and the long ones should not be the last to end.

    Raises:
      ValueError: the group does not fit in the tile.
    """
    queries = tiling.prefill.queries(group)
    if single_token_rows:
        empty = jnp.zeros((0,), jnp.int32)
        return AttentionMetadata(empty, empty)
    starts = query_start_loc
    ends = jnp.append(query_start_loc[1:], np.int32(num_tokens))  # and the padding's
    lengths = ends - starts
    # The decode launch has done the rows with one query; one token of padding it
    # has not.
    is_padding = jnp.arange(starts.shape[0]) == starts.shape[0] - 1
    counts = jnp.where(
        (lengths == 1) & ~is_padding, 0, -(-lengths // np.int32(queries))
    )
    tile_ends = jnp.cumsum(counts, dtype=jnp.int32)
    num_tiles = max_tiles(num_tokens, starts.shape[0] - 1, queries)
    tile = jnp.arange(num_tiles - 1, -1, -1, dtype=jnp.int32)
    # A comparison and a sum, because a search would be a loop on a GPU.
    row = jnp.sum(tile[:, None] >= tile_ends[None, :], axis=1, dtype=jnp.int32)
    is_used = row < starts.shape[0]
    row = jnp.minimum(row, starts.shape[0] - 1)
    token = starts[row] + (tile - (tile_ends - counts)[row]) * np.int32(queries)
    is_row = is_used & (row < starts.shape[0] - 1)
    return AttentionMetadata(
        jnp.where(is_row, row, PADDING),
        jnp.where(is_used, token, np.int32(num_tokens)),
    )


def max_tiles(num_tokens: int, num_rows: int, queries: int) -> int:
    """Return how many tiles `num_rows` rows and the padding need at most.

    Every row may end in a tile that is not full. With two queries a tile or more
    there are also no more tiles than half the tokens, since rows of one query have
    none, and one of padding.
    """
    bound = num_tokens // queries + num_rows + 1
    return min(bound, num_tokens // 2 + 1 if queries > 1 else num_tokens)
