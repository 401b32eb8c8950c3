"""Checks of shapes, dtypes and sizes; what passes them, the paths take as given."""

import jax
import jax.numpy as jnp

from kernels_pallas.paged_attention.metadata import max_tiles
from kernels_pallas.paged_attention.problem import Operands
from kernels_pallas.paged_attention.tiling import Tiling

Shaped = jax.Array | jax.ShapeDtypeStruct  # a check needs no numbers

COMPUTE_DTYPES = ("bfloat16", "float16", "float32")
BYTE_DTYPES = ("int8", "float8_e4m3fn", "float8_e5m2")
GIB = 2**30
# Between these sizes Pallas-Triton of jax 0.10 to 0.12 counts the elements of a
# one-byte array in signed 32 bits, and the offsets overflow; above, it uses 64 bits.
OVERFLOW_BYTES = (2 * GIB, 4 * GIB)


def check_shapes(
    queries: Shaped,
    keys: Shaped,
    values: Shaped,
    block_tables: Shaped,
    query_start_loc: Shaped,
    seq_lens: Shaped,
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


def check_rows(
    queries: Shaped,
    seq_lens: Shaped,
    *,
    sliding_window: int | None,
    single_token_rows: bool,
) -> None:
    """Refuse an empty window, and rows of one token that the tokens do not match.

    Raises:
      ValueError: see above.
    """
    if sliding_window is not None and sliding_window < 1:
        raise ValueError(f"sliding_window is {sliding_window}; use 1 or more, or None")
    if single_token_rows and queries.shape[0] != seq_lens.shape[0]:
        raise ValueError(
            f"{queries.shape[0]} queries for {seq_lens.shape[0]} rows of one token"
        )


def check_soft_cap(soft_cap: float | None) -> None:
    """Refuse a bound that is not positive.

    Raises:
      ValueError: see above.
    """
    if soft_cap is not None and not soft_cap > 0:
        raise ValueError(f"soft_cap is {soft_cap}; use more than 0, or None")


def check_extras(
    queries: Shaped,
    keys: Shaped,
    sinks: Shaped | None,
    key_scales: Shaped | None,
    value_scales: Shaped | None,
) -> None:
    """Refuse sinks or scales whose shapes do not fit, and half a pair of scales.

    Raises:
      ValueError: see above.
    """
    if sinks is not None and sinks.shape != (queries.shape[1],):
        raise ValueError(
            f"sinks are {sinks.shape}; one for each of the {queries.shape[1]} query "
            "heads is expected"
        )
    if (key_scales is None) != (value_scales is None):
        raise ValueError("key_scales and value_scales come together, or neither")
    for name, scales in (("key_scales", key_scales), ("value_scales", value_scales)):
        if scales is not None and scales.shape != keys.shape[:3]:
            raise ValueError(
                f"{name} are {scales.shape}; one a slot, {keys.shape[:3]}, is expected"
            )


def check_kernel(
    operands: Operands, tiling: Tiling, *, single_token_rows: bool
) -> None:
    """Refuse what the kernel cannot run, and metadata made for something else.

    Raises:
      ValueError: a dtype, a size, a tile or metadata that does not fit.
    """
    queries, keys, values = operands.queries, operands.keys, operands.values
    if queries.dtype.name not in COMPUTE_DTYPES:
        raise ValueError(
            f"queries are {queries.dtype}; use one of {', '.join(COMPUTE_DTYPES)}"
        )
    if keys.dtype != values.dtype:
        raise ValueError(f"keys are {keys.dtype} and values {values.dtype}")
    if keys.dtype.name not in COMPUTE_DTYPES + BYTE_DTYPES:
        known = ", ".join(COMPUTE_DTYPES + BYTE_DTYPES)
        raise ValueError(f"keys are {keys.dtype}; use one of {known}")
    if keys.dtype == jnp.int8 and operands.key_scales is None:
        raise ValueError("int8 keys and values need key_scales and value_scales")
    check_pool_size(keys)
    check_tiles(operands, tiling, single_token_rows=single_token_rows)


def check_pool_size(pool: Shaped) -> None:
    """Refuse keys or values of one byte whose offsets would overflow on a GPU.

    Raises:
      ValueError: one byte an element, more than 2 GiB and up to 4 GiB.
    """
    size = pool.size * pool.dtype.itemsize
    least, most = OVERFLOW_BYTES
    if pool.dtype.itemsize == 1 and least < size <= most:
        blocks, block = pool.shape[0], size // pool.shape[0]
        raise ValueError(
            f"keys of {pool.dtype} take {size / GIB:.2f} GiB in {blocks} blocks; "
            "between 2 and 4 GiB this version of jax computes wrong addresses for "
            f"one-byte arrays: use at most {least // block} blocks, or more than "
            f"{most // block}"
        )


def check_tiles(operands: Operands, tiling: Tiling, *, single_token_rows: bool) -> None:
    """Refuse tiles that hold no group, and metadata of another step or tiling.

    Raises:
      ValueError: see above.
    """
    num_tokens, num_heads, _ = operands.queries.shape
    group = num_heads // operands.keys.shape[1]
    tiling.decode.queries(group)
    queries, num_rows = tiling.prefill.queries(group), operands.seq_lens.shape[0]
    if single_token_rows:
        return
    expected = max_tiles(num_tokens, num_rows, queries)
    found = operands.tile_rows.shape[0]
    if found != expected:
        raise ValueError(
            f"the metadata has {found} tiles; {num_tokens} tokens of {num_rows} rows, "
            f"{queries} to a tile, need {expected}: make it by attention_metadata with "
            "this tiling and this step's arrays"
        )


def check_write(
    keys: Shaped,
    values: Shaped,
    new_keys: Shaped,
    new_values: Shaped,
    slot_mapping: Shaped,
) -> None:
    """Refuse new keys and values that do not fit the cache or the slots.

    Raises:
      ValueError: see above.
    """
    if (keys.shape, keys.dtype) != (values.shape, values.dtype):
        raise ValueError(
            f"keys are {keys.dtype} {keys.shape}, values {values.dtype} {values.shape}"
        )
    check_pool_size(keys)
    expected = (slot_mapping.shape[0], keys.shape[1], keys.shape[3])
    for name, new in (("new_keys", new_keys), ("new_values", new_values)):
        if new.shape != expected:
            raise ValueError(f"{name} are {new.shape}; {expected} is expected")
    if slot_mapping.dtype != jnp.int32:
        raise ValueError(f"slot_mapping is {slot_mapping.dtype}; int32 is expected")
