"""Gated MLP."""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from models.config import ModelConfig
from models.layers.linear import Linear


class MLP(nnx.Module):
    """`down(silu(gate(x)) * up(x))`, with gate and up in one product.

    Source: Shazeer 2020, arXiv:2002.05202, section 2 (SwiGLU).
    """

    def __init__(self, config: ModelConfig, *, dtype: jnp.dtype):
        width, inner = config.hidden_size, config.intermediate_size
        bias = config.mlp_bias
        self.gate_up = Linear(width, 2 * inner, bias=bias, dtype=dtype)
        self.down = Linear(inner, width, bias=bias, dtype=dtype)

    def __call__(self, x: Float[Array, "T M"]) -> Float[Array, "T M"]:
        """Apply to each token."""
        gate, up = jnp.split(self.gate_up(x), 2, axis=-1)  # [T, F] each
        return self.down(jax.nn.silu(gate) * up)
