"""Paged attention for XLA, without a kernel: the CPU's path.

Rows with one query run first, in groups (`xla_rows`); rows with more run one after
another, in tiles of queries (`xla_tiles`). Both go over their keys in chunks, in loops
whose bounds are data, so that short contexts cost little and no bucket of context
lengths is needed. Gathering a whole table at once would be slower: its large
temporaries fault pages in again in each layer.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from kernels_pallas.paged_attention.xla_rows import attend_rows
from kernels_pallas.paged_attention.xla_tiles import attend_tiles


class XlaMetadata(NamedTuple):
    """What all layers of a step share.

    Attributes:
      order: rows by falling length, those with one query first.
      places: place of each row in that order.
      num_single: rows with one query.
    """

    order: Int[Array, " R"]
    places: Int[Array, " R"]
    num_single: Int[Array, ""]


def xla_metadata(
    query_start_loc: Int[Array, " edges"], seq_lens: Int[Array, " R"]
) -> XlaMetadata:
    """Sort the rows of a step, so that those of one group are of about one length.

    Args:
      query_start_loc: first query of each row, rows with one query first.
      seq_lens: tokens of each row, the step's own included.
    """
    is_single = query_start_loc[1:] - query_start_loc[:-1] == 1
    order = jnp.argsort(jnp.where(is_single, -seq_lens, 0)).astype(jnp.int32)
    return XlaMetadata(
        order=order,
        places=jnp.argsort(order).astype(jnp.int32),
        num_single=jnp.sum(is_single, dtype=jnp.int32),
    )


def xla_attention(  # noqa: PLR0913 - the arrays of a step
    queries: Float[Array, "T H D"],
    keys: Float[Array, "N K B D"],
    values: Float[Array, "N K B D"],
    block_tables: Int[Array, "R P"],
    query_start_loc: Int[Array, " R+1"],
    seq_lens: Int[Array, " R"],
    metadata: XlaMetadata | None = None,
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
      metadata: what `xla_metadata` made of the same step; None makes it here.
      scale: factor on the scores.
      sliding_window: last positions that a query sees, itself included.
      single_token_rows: whether every row has one query, so that query i is row
        i's.

    Returns:
      The attended values; zeros for padding queries.
    """
    rows = metadata or xla_metadata(query_start_loc, seq_lens)
    scaled = queries.astype(jnp.float32) * np.float32(scale)
    num_tokens = len(queries)
    singles = attend_rows(
        scaled.at[rows.order].get(mode="clip", wrap_negative_indices=False),
        (keys, values, block_tables[rows.order]),
        seq_lens[rows.order],
        rows.num_single,
        sliding_window=sliding_window,
    )[rows.places]
    if single_token_rows:
        return singles.astype(queries.dtype)
    singles = singles[:num_tokens]
    missing = num_tokens - len(singles)
    out = attend_tiles(
        scaled,
        jnp.pad(singles, ((0, missing), (0, 0), (0, 0))),
        (keys, values, block_tables),
        (query_start_loc, seq_lens, rows.num_single),
        sliding_window=sliding_window,
    )
    is_real = jnp.arange(num_tokens, dtype=jnp.int32) < query_start_loc[-1]
    return jnp.where(lax.expand_dims(is_real, (1, 2)), out, 0).astype(queries.dtype)
