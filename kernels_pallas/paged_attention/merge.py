"""Merging of attention over parts of the keys into attention over all of them."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt
from jaxtyping import Array, Float

from kernels_pallas.paged_attention.tiling import next_power_of_2


def merge_states(
    outputs: Float[Array, "S *Q D"], log_sums: Float[Array, " S *Q"]
) -> tuple[Float[Array, " *Q D"], Float[Array, " *Q"]]:
    """Merge what queries found in disjoint sets of keys.

    Args:
      outputs: attended values over each set, each softmax over its own set.
      log_sums: natural logarithm of the sum of exponentials of the scores of each
        set; minus infinity for a set without a key, whose outputs may be anything.

    Returns:
      The attended values over all sets, zeros where no set has a key, and the
      logarithm of the whole sum; both float32.

    Source: Dao et al. 2023, "Flash-Decoding for long-context inference".
    """
    log_sums = log_sums.astype(jnp.float32)
    maximum = jnp.max(log_sums, axis=0)
    offset = jnp.where(jnp.isneginf(maximum), 0.0, maximum)
    weights = jnp.exp(log_sums - offset[None])
    total = jnp.sum(weights, axis=0)
    weights = weights[..., None]
    parts = jnp.where(weights == 0.0, 0.0, outputs.astype(jnp.float32) * weights)
    merged = jnp.sum(parts, axis=0) / jnp.where(total == 0.0, 1.0, total)[..., None]
    return merged, offset + jnp.log(total)


def merge_splits(
    outputs: Float[Array, "S R H D"],
    log_sums: Float[Array, "S R H"],
    query_start_loc: jax.Array,
    like: jax.ShapeDtypeStruct,
    *,
    single_token_rows: bool,
    interpret: bool,
) -> Float[Array, "T H D"]:
    """Merge the splits of rows with one query, each into its token's place.

    One launch, where XLA makes two or three kernels of `merge_states`.

    Args:
      outputs: attended values of each split.
      log_sums: logarithm of each split's sum, minus infinity without a key.
      query_start_loc: first query of each row.
      like: shape and dtype of the result.
      single_token_rows: whether token i is row i's only one.
      interpret: whether to run on the CPU.

    Returns:
      The merged values; anything for tokens of rows with more queries or none.
    """
    kernel = functools.partial(merge_kernel, single_token_rows=single_token_rows)
    arrays = (outputs, log_sums, query_start_loc)
    return pl.pallas_call(
        kernel,
        out_shape=like,
        grid=outputs.shape[1:3],
        in_specs=[whole(a) for a in arrays],
        out_specs=whole(like),
        compiler_params=plt.CompilerParams(num_warps=4, num_stages=1),
        interpret=interpret,
        name="paged_attention_merge",
    )(*arrays)


def merge_kernel(
    outputs_ref: Any,  # [S, R, H, D]
    log_sums_ref: Any,  # [S, R, H]
    query_start_loc_ref: Any,  # [R+1]
    merged_ref: Any,  # [T, H, D]
    *,
    single_token_rows: bool,
) -> None:
    """Merge for one row and one query head."""
    row, head = pl.program_id(0), pl.program_id(1)
    token, is_real = row, True
    if not single_token_rows:
        token = query_start_loc_ref[row]
        is_real = query_start_loc_ref[row + 1] - token == 1

    @pl.when(is_real)
    def _():
        splits, head_dim = outputs_ref.shape[0], outputs_ref.shape[3]
        split = lax.broadcasted_iota(jnp.int32, (splits,), 0)
        feature = lax.broadcasted_iota(jnp.int32, (next_power_of_2(head_dim),), 0)
        exists = feature < head_dim
        parts = plt.load(
            outputs_ref.at[split[:, None], row, head, feature[None, :]],
            mask=jnp.broadcast_to(exists[None, :], (splits, feature.shape[0])),
            other=jnp.float32(0.0),
        )
        merged, _ = merge_states(parts, plt.load(log_sums_ref.at[split, row, head]))
        merged = merged.astype(merged_ref.dtype)
        plt.store(merged_ref.at[token, head, feature], merged, mask=exists)


def whole(array: Any) -> pl.BlockSpec:
    """Give each program the whole array: it computes its own addresses."""
    return pl.BlockSpec(array.shape, lambda *_: (0,) * len(array.shape))
