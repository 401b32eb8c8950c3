"""What rows and tiles share: chunks of keys, and which of them a query sees."""

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int


def pad_tables(tables: Int[Array, "R P"], width: int) -> Int[Array, "R Q"]:
    """Widen the tables to whole chunks of so many blocks, with the null block."""
    return jnp.pad(tables, ((0, 0), (0, -tables.shape[1] % width)))


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
