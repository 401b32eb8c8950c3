"""Paged attention in plain jnp: slow, and the definition of the meaning."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num


def row_of_tokens(
    query_start_loc: Int[Array, " edges"], num_tokens: int
) -> Int[Array, " T"]:
    """Return the row of each token; padding tokens get the number of rows.

    A comparison and a sum, because a search would be a loop on a GPU.
    """
    token = jnp.arange(num_tokens, dtype=jnp.int32)
    ends = query_start_loc[1:]
    return jnp.sum(token[:, None] >= ends[None, :], axis=1, dtype=jnp.int32)


def reference_attention(  # noqa: PLR0913 - the arrays of a step
    queries: Float[Array, "T H D"],
    keys: Num[Array, "N K B D"],
    values: Num[Array, "N K B D"],
    block_tables: Int[Array, "R P"],
    query_start_loc: Int[Array, " R+1"],
    seq_lens: Int[Array, " R"],
    *,
    scale: float,
    sliding_window: int | None = None,
    soft_cap: float | None = None,
    sinks: Float[Array, " H"] | None = None,
    key_scales: Float[Array, "N K B"] | None = None,
    value_scales: Float[Array, "N K B"] | None = None,
) -> Float[Array, "T H D"]:
    """Attend by gathering, for each query, its row's whole block table.

    Args:
      queries: query heads of all rows.
      keys: cached keys.
      values: cached values.
      block_tables: block ids of each row.
      query_start_loc: first query of each row.
      seq_lens: tokens of each row, the step's own included.
      scale: factor on the scores.
      sliding_window: last positions that a query sees, itself included.
      soft_cap: bound that scores approach, after the scale: cap * tanh(score / cap).
      sinks: score, after scale and cap, of a key without a value that each query of
        a head sees besides the others.
      key_scales: factor on the keys of each slot.
      value_scales: factor on the values of each slot.

    Returns:
      The attended values; zeros for padding queries.

    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1; soft cap: Gemma 2,
    arXiv:2408.00118, section 2; sinks: gpt-oss, arXiv:2508.10925, section 2.
    """
    num_tokens, num_heads, head_dim = queries.shape
    num_kv_heads, block_size = keys.shape[1:3]
    num_rows = seq_lens.shape[0]
    row = row_of_tokens(query_start_loc, num_tokens)  # [T]
    is_real = row < num_rows
    row = jnp.minimum(row, num_rows - 1)
    token = jnp.arange(num_tokens, dtype=jnp.int32)
    position = token - query_start_loc[row + 1] + seq_lens[row]  # [T]
    k = _gather(_with_scales(keys, key_scales), block_tables[row])  # [T, S, K, D]
    v = _gather(_with_scales(values, value_scales), block_tables[row])
    key_position = jnp.arange(block_tables.shape[1] * block_size, dtype=jnp.int32)
    sees = key_position[None, :] <= position[:, None]  # [T, S]
    if sliding_window is not None:
        sees &= key_position[None, :] > position[:, None] - sliding_window
    sees &= is_real[:, None]
    group = num_heads // num_kv_heads
    q = queries.reshape(num_tokens, num_kv_heads, group, head_dim)
    scores = jnp.einsum(
        "tkgd,tskd->tkgs", q, k.astype(q.dtype), preferred_element_type=jnp.float32
    ) * np.float32(scale)
    if soft_cap is not None:
        scores = soft_cap * jnp.tanh(scores / soft_cap)
    weights = _softmax(scores, sees, is_real, sinks)
    v = jnp.where(sees[:, :, None, None], v, jnp.zeros_like(v))
    out = jnp.einsum("tkgs,tskd->tkgd", weights, v.astype(jnp.float32))
    return out.reshape(queries.shape).astype(queries.dtype)


def _softmax(
    scores: Float[Array, "T K G S"],
    sees: Bool[Array, "T S"],
    is_real: Bool[Array, " T"],
    sinks: Float[Array, " H"] | None,
) -> Float[Array, "T K G S"]:
    """Return the weights; zeros where a query does not see."""
    num_tokens, num_kv_heads, group, _ = scores.shape
    scores = jnp.where(sees[:, None, None, :], scores, -jnp.inf)
    # A padding query sees nothing; zero scores keep its softmax finite.
    scores = jnp.where(is_real[:, None, None, None], scores, 0.0)
    if sinks is not None:
        sink = sinks.astype(jnp.float32).reshape(1, num_kv_heads, group, 1)
        sink = jnp.broadcast_to(sink, (num_tokens, num_kv_heads, group, 1))
        scores = jnp.concatenate([sink, scores], axis=-1)
    weights = jax.nn.softmax(scores, axis=-1)
    if sinks is not None:
        weights = weights[..., 1:]
    return jnp.where(sees[:, None, None, :], weights, 0.0)


def _with_scales(
    cache: Num[Array, "N K B D"], scales: Float[Array, "N K B"] | None
) -> Float[Array, "N K B D"]:
    """Return a cache in numbers that can be computed with."""
    if scales is None:
        return cache if cache.dtype.itemsize > 1 else cache.astype(jnp.float32)
    return cache.astype(jnp.float32) * scales.astype(jnp.float32)[..., None]


def _gather(
    cache: Float[Array, "N K B D"], tables: Int[Array, "T P"]
) -> Float[Array, "T S K D"]:
    blocks = cache[tables]  # [T, P, K, B, D]
    num_tokens, width, num_kv_heads, block_size, head_dim = blocks.shape
    by_position = blocks.transpose(0, 1, 3, 2, 4)
    return by_position.reshape(num_tokens, width * block_size, num_kv_heads, head_dim)
