"""Checks of shapes and choice of the path; the paths themselves never validate."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from kernels_pallas.paged_attention.xla import xla_attention


@jax.jit
def write_kv(
    keys: Float[Array, "N K B D"],
    values: Float[Array, "N K B D"],
    new_keys: Float[Array, "T K D"],
    new_values: Float[Array, "T K D"],
    slot_mapping: Int[Array, " T"],
) -> tuple[Float[Array, "N K B D"], Float[Array, "N K B D"]]:
    """Write the keys and values of a step's tokens into the cache.

    Args:
      keys: cached keys; donate them, or the whole cache is copied.
      values: cached values, likewise.
      new_keys: keys of the step's tokens.
      new_values: values of the step's tokens.
      slot_mapping: where each goes, block id * block size + offset. A slot past
        the end is dropped; a negative one would wrap and is a caller's bug.

    Returns:
      The updated keys and values.
    """
    block_size = keys.shape[2]
    block, offset = slot_mapping // block_size, slot_mapping % block_size
    return (
        keys.at[block, :, offset].set(new_keys.astype(keys.dtype), mode="drop"),
        values.at[block, :, offset].set(new_values.astype(values.dtype), mode="drop"),
    )


# Compiled on its own only when called alone; inside a model the jit lets all layers
# share one trace, which makes lowering several times faster.
@functools.partial(
    jax.jit, static_argnames=("scale", "sliding_window", "single_token_rows")
)
def paged_attention(  # noqa: PLR0913 - the arrays of a step
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
    """Attend over the paged cache; see the package for what the arrays mean.

    Args:
      queries: query heads of all rows, rows with one query first.
      keys: cached keys, the step's own included.
      values: cached values, likewise.
      block_tables: block ids of each row.
      query_start_loc: first query of each row.
      seq_lens: tokens of each row, the step's own included; 0 for padding rows.
      scale: factor on the scores.
      sliding_window: last positions that a query sees, itself included.
      single_token_rows: whether every row has one query.

    Returns:
      The attended values in the dtype of the queries; zeros for padding.

    Raises:
      ValueError: shapes or dtypes that do not fit together.
    """
    check_shapes(queries, keys, values, block_tables, query_start_loc, seq_lens)
    if sliding_window is not None and sliding_window < 1:
        raise ValueError(f"sliding_window is {sliding_window}; use 1 or more, or None")
    if single_token_rows and queries.shape[0] != seq_lens.shape[0]:
        raise ValueError(
            f"{queries.shape[0]} queries for {seq_lens.shape[0]} rows of one token"
        )
    return xla_attention(
        queries,
        keys,
        values,
        block_tables,
        query_start_loc,
        seq_lens,
        scale=scale,
        sliding_window=sliding_window,
        single_token_rows=single_token_rows,
    )


def check_shapes(
    queries: jax.Array,
    keys: jax.Array,
    values: jax.Array,
    block_tables: jax.Array,
    query_start_loc: jax.Array,
    seq_lens: jax.Array,
) -> None:
    """Refuse arrays that do not fit together, naming the sizes found.

    Raises:
      ValueError: see `paged_attention` for what fits.
    """
    if keys.shape != values.shape:
        raise ValueError(f"keys are {keys.shape} and values {values.shape}")
    heads, kv_heads = queries.shape[1], keys.shape[1]
    if heads % kv_heads:
        raise ValueError(f"{heads} query heads do not divide among {kv_heads} KV heads")
    if queries.shape[2] != keys.shape[3]:
        raise ValueError(f"head dims are {queries.shape[2]} and {keys.shape[3]}")
    rows = seq_lens.shape[0]
    if block_tables.shape[0] != rows or query_start_loc.shape[0] != rows + 1:
        raise ValueError(
            f"seq_lens has {rows} rows, block_tables {block_tables.shape[0]} and "
            f"query_start_loc {query_start_loc.shape[0]} entries (rows + 1 expected)"
        )
    for name, array in (("block_tables", block_tables), ("seq_lens", seq_lens)):
        if array.dtype != jnp.int32:
            raise ValueError(f"{name} is {array.dtype}; int32 is expected")
