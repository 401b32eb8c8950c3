"""Token embedding."""

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int


class Embed(nnx.Module):
    """One vector per token id."""

    def __init__(self, vocab_size: int, size: int, *, dtype: jnp.dtype):
        self.weight = nnx.Param(jnp.zeros((vocab_size, size), dtype))

    def __call__(self, token_ids: Int[Array, " T"]) -> Float[Array, "T M"]:
        """Look the tokens up; ids are checked by the host, before they are queued."""
        rows = self.weight[...].at[token_ids]
        return rows.get(mode="clip", wrap_negative_indices=False)
