"""What rows and tiles share: chunks of keys, and which of them a query sees."""

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int


def find_head_blocks(
    tables: Int[Array, "R P"], cache: Float[Array, "N K B D"], width: int
) -> Int[Array, "R K Q"]:
    """Return where each head's part of a block lies in the cache as [N K, B, D].

    Made once, outside the loops: XLA would compute what a loop makes of ids again for
    each number that it gathers with them.

    Args:
      tables: block ids of each row.
      cache: keys or values.
      width: blocks of a chunk; tables are widened to whole chunks by the null block.
    """
    num_blocks, num_kv_heads = cache.shape[:2]
    ids = jnp.pad(tables, ((0, 0), (0, -tables.shape[1] % width)))
    ids = jnp.clip(ids, 0, num_blocks - 1)
    head = jnp.arange(num_kv_heads, dtype=jnp.int32)
    return ids[:, None, :] * num_kv_heads + head[None, :, None]


def gather_tokens(
    cache: Float[Array, "N K B D"], head_blocks: Int[Array, "*heads W"]
) -> Float[Array, "*heads C D"]:
    """Gather parts of blocks as the tokens of each head, in float32.

    Head by head, so that the products that follow need no other order: gathered as
    whole blocks, XLA would transpose number by number.
    """
    block_size, head_dim = cache.shape[2:]
    found = cache.reshape(-1, block_size, head_dim).at[head_blocks]
    found = found.get(mode="promise_in_bounds", wrap_negative_indices=False)
    return found.reshape(*head_blocks.shape[:-1], -1, head_dim).astype(jnp.float32)


def sees(
    key_position: Int[Array, "1 C"],
    position: Int[Array, "U 1"],
    sliding_window: int | None,
) -> Bool[Array, "U C"]:
    """Return which keys each query sees."""
    seen = key_position <= position
    if sliding_window is not None:
        seen &= key_position > position - sliding_window
    return seen


def chunk_range(
    shortest: Int[Array, ""],
    longest: Int[Array, ""],
    chunk: int,
    sliding_window: int | None,
) -> tuple[Int[Array, ""] | np.int32, Int[Array, ""]]:
    """Return the first chunk that some query sees, and one past the last.

    Args:
      shortest: fewest tokens that a query sees without a window.
      longest: most tokens.
      chunk: tokens of a chunk.
      sliding_window: last positions that a query sees, itself included.
    """
    last = lax.div(longest + chunk - 1, np.int32(chunk))
    if sliding_window is None:
        return np.int32(0), last
    first = lax.div(jnp.maximum(shortest - sliding_window, 0), np.int32(chunk))
    return first, last
