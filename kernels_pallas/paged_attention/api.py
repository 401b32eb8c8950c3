"""The public calls: they check, then take a path; the paths never validate."""

import functools

import jax
from jaxtyping import Array, Float, Int, Num

from kernels_pallas.paged_attention import checks
from kernels_pallas.paged_attention.launch import attend_all
from kernels_pallas.paged_attention.metadata import AttentionMetadata
from kernels_pallas.paged_attention.problem import Operands, Problem
from kernels_pallas.paged_attention.tiling import Tiling
from kernels_pallas.paged_attention.write import write_tokens
from kernels_pallas.paged_attention.xla import XlaMetadata, xla_attention


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
    metadata: XlaMetadata | None = None,
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
      metadata: what `xla_metadata` made of the same step; None makes it here.
      scale: factor on the scores.
      sliding_window: last positions that a query sees, itself included.
      single_token_rows: whether every row has one query.

    Returns:
      The attended values in the dtype of the queries; zeros for padding.

    Raises:
      ValueError: shapes or dtypes that do not fit together.
    """
    checks.check_shapes(queries, keys, values, block_tables, query_start_loc, seq_lens)
    checks.check_rows(
        queries,
        seq_lens,
        sliding_window=sliding_window,
        single_token_rows=single_token_rows,
    )
    return xla_attention(
        queries,
        keys,
        values,
        block_tables,
        query_start_loc,
        seq_lens,
        metadata,
        scale=scale,
        sliding_window=sliding_window,
        single_token_rows=single_token_rows,
    )


@functools.partial(
    jax.jit,
    static_argnames=(
        "scale",
        "tiling",
        "sliding_window",
        "soft_cap",
        "single_token_rows",
        "interpret",
    ),
)
def pallas_attention(  # noqa: PLR0913 - the arrays of a step
    queries: Float[Array, "T H D"],
    keys: Num[Array, "N K B D"],
    values: Num[Array, "N K B D"],
    block_tables: Int[Array, "R P"],
    query_start_loc: Int[Array, " R+1"],
    seq_lens: Int[Array, " R"],
    metadata: AttentionMetadata,
    *,
    scale: float,
    tiling: Tiling,
    sliding_window: int | None = None,
    soft_cap: float | None = None,
    sinks: Float[Array, " H"] | None = None,
    key_scales: Float[Array, "N K B"] | None = None,
    value_scales: Float[Array, "N K B"] | None = None,
    single_token_rows: bool = False,
    interpret: bool = False,
) -> Float[Array, "T H D"]:
    """Attend over the paged cache by Triton kernels; see `reference_attention`.

    Two launches write one buffer: rows with one query, their keys divided among
    `tiling.decode.num_splits` programs and merged by a third launch if there are
    several; then rows with more, in tiles of queries. With `single_token_rows` there
    is no second. Lower it for a CUDA device, or set `interpret`.

    What a query may not see is never read, with one exception: a key or value that
    is no number spoils the other queries of its own row that share its tile.

    Args:
      queries: query heads of all rows: bfloat16, float16 or float32.
      keys: cached keys, the step's own included: one of the same dtypes, int8,
        float8_e4m3fn or float8_e5m2. Other than the queries' they are converted.
      values: cached values, likewise.
      block_tables: block ids of each row; entries past its tokens are not read.
      query_start_loc: first query of each row.
      seq_lens: tokens of each row, the step's own included; 0 for padding rows.
      metadata: what `attention_metadata` made of the same step and tiling.
      scale: factor on the scores.
      tiling: see `tiling_for`.
      sliding_window: last positions that a query sees, itself included.
      soft_cap: bound that scores approach: cap * tanh(score / cap).
      sinks: score of a key without a value that each query of a head sees.
      key_scales: factor on the keys of each slot; with int8 it is needed.
      value_scales: factor on the values, likewise.
      single_token_rows: whether every row has one query, so that query i is row
        i's.
      interpret: run on the CPU, slowly.

    Returns:
      The attended values in the dtype of the queries; zeros for padding.

    Raises:
      ValueError: shapes, dtypes, sizes or metadata that do not fit together.
    """
    checks.check_shapes(queries, keys, values, block_tables, query_start_loc, seq_lens)
    checks.check_rows(
        queries,
        seq_lens,
        sliding_window=sliding_window,
        single_token_rows=single_token_rows,
    )
    checks.check_soft_cap(soft_cap)
    checks.check_extras(queries, keys, sinks, key_scales, value_scales)
    operands = Operands(
        queries,
        keys,
        values,
        block_tables,
        query_start_loc,
        seq_lens,
        *metadata,
        key_scales,
        value_scales,
        sinks,
    )
    checks.check_kernel(operands, tiling, single_token_rows=single_token_rows)
    problem = Problem(
        tile=tiling.decode,
        scale=scale,
        group=queries.shape[1] // keys.shape[1],
        block_size=keys.shape[2],
        head_dim=queries.shape[2],
        num_tokens=queries.shape[0],
        sliding_window=sliding_window,
        soft_cap=soft_cap,
        single_token_rows=single_token_rows,
    )
    return attend_all(operands, problem, tiling, interpret=interpret)


@functools.partial(jax.jit, static_argnames=("interpret",))
def pallas_write_kv(
    keys: Num[Array, "N K B D"],
    values: Num[Array, "N K B D"],
    new_keys: Float[Array, "T K D"],
    new_values: Float[Array, "T K D"],
    slot_mapping: Int[Array, " T"],
    *,
    interpret: bool = False,
) -> tuple[Num[Array, "N K B D"], Num[Array, "N K B D"]]:
    """Write the keys and values of a step's tokens into the cache, in one launch.

    Args:
      keys: cached keys; donate them, or the whole cache is copied.
      values: cached values, likewise.
      new_keys: keys of the step's tokens.
      new_values: values of the step's tokens.
      slot_mapping: where each goes, block id * block size + offset; slots that the
        cache has not are dropped. No two tokens may have the same slot.
      interpret: run on the CPU, slowly.

    Returns:
      The updated keys and values.

    Raises:
      ValueError: shapes, dtypes or sizes that do not fit together.
    """
    checks.check_write(keys, values, new_keys, new_values, slot_mapping)
    return write_tokens(
        keys, values, new_keys, new_values, slot_mapping, interpret=interpret
    )
