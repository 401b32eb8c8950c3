"""Token embedding."""

import jax.numpy as jnp
from flax import nnx
from jax import lax
from jaxtyping import Array, Float, Int


class Embed(nnx.Module):
    """One vector per token id.

    Attributes:
      split_over: mesh axis over which the ids are split; None where all are here.
    """

    def __init__(self, vocab_size: int, size: int, *, dtype: jnp.dtype):
        self.weight = nnx.Param(jnp.zeros((vocab_size, size), dtype))
        self.split_over: str | None = None

    def __call__(self, token_ids: Int[Array, " T"]) -> Float[Array, "T M"]:
        """Look the tokens up; ids are checked by the host, before they are queued."""
        weight = self.weight[...]
        if self.split_over is None:
            return weight.at[token_ids].get(mode="clip", wrap_negative_indices=False)
        # Each device knows some ids; the vectors of the others are zeros there.
        local = token_ids - lax.axis_index(self.split_over) * weight.shape[0]
        local = jnp.where(local < 0, weight.shape[0], local)  # -1 would be the last
        found = weight.at[local].get(mode="fill", fill_value=0)
        return lax.psum(found, self.split_over)
