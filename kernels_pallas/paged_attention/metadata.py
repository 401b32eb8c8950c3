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
        return AttentionMetadata(*[jnp.zeros((0,), jnp.int32)] * 2)
    num_rows = query_start_loc.shape[0] - 1
    # The padding tokens are one more row after the last.
    starts = query_start_loc  # [R+1]
    lengths = jnp.append(query_start_loc[1:], np.int32(num_tokens)) - starts
    is_single = (lengths == 1) & (jnp.arange(num_rows + 1) < num_rows)
    counts = jnp.where(is_single, 0, -(-lengths // np.int32(queries)))
    ends = jnp.cumsum(counts, dtype=jnp.int32)
    num_tiles = max_tiles(num_tokens, num_rows, queries)
    tile = jnp.arange(num_tiles - 1, -1, -1, dtype=jnp.int32)
    # A comparison and a sum, because a search would be a loop on a GPU.
    row = jnp.sum(tile[:, None] >= ends[None, :], axis=1, dtype=jnp.int32)
    at = jnp.minimum(row, num_rows)
    token = starts[at] + (tile - (ends - counts)[at]) * np.int32(queries)
    return AttentionMetadata(
        jnp.where(row < num_rows, row, PADDING),
        jnp.where(row <= num_rows, token, np.int32(num_tokens)),
    )


def max_tiles(num_tokens: int, num_rows: int, queries: int) -> int:
    """Return how many tiles the rows and the padding need at most.

    Each may end in a tile that is not full. But a row that has tiles has two tokens
    or more, so with three queries a tile it has at most one for two tokens.
    """
    bound = num_tokens // queries + num_rows + 1
    return min(bound, num_tokens // 2 + 1 if queries > 2 else num_tokens)
