"""Self-attention around a backend: projections, head norms, rotation.

Writing to the paged cache and attending over it belong to the backend, which comes
in as `attend` (see `attention_backend`).
"""

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from models.config import ModelConfig
from models.inputs import StepInputs
from models.kv_cache import LayerCache
from models.layers.attention_backend import Attend
from models.layers.linear import Linear
from models.layers.norm import RMSNorm
from models.layers.rope import Rotation, rotate


class Attention(nnx.Module):
    """Grouped-query attention of one layer."""

    def __init__(self, config: ModelConfig, layer: int, *, dtype: jnp.dtype):
        self.num_heads, self.num_kv_heads = config.num_heads, config.num_kv_heads
        self.head_dim = config.head_dim
        self.sliding_window = config.sliding_windows[layer]
        width = config.hidden_size
        q_width = config.num_heads * config.head_dim
        kv_width = config.num_kv_heads * config.head_dim
        self.qkv = Linear(
            width, q_width + 2 * kv_width, bias=config.qkv_bias, dtype=dtype
        )
        self.o = Linear(q_width, width, bias=config.o_bias, dtype=dtype)
        if config.qk_norm:
            eps = config.rms_norm_eps
            self.q_norm = RMSNorm(config.head_dim, eps=eps, dtype=dtype)
            self.k_norm = RMSNorm(config.head_dim, eps=eps, dtype=dtype)
        self.qk_norm = config.qk_norm

    def __call__(
        self,
        x: Float[Array, "T M"],
        inputs: StepInputs,
        cache: LayerCache,
        turn: Rotation,
        attend: Attend,
    ) -> tuple[Float[Array, "T M"], LayerCache]:
        """Attend from the step's tokens to all their sequences' tokens so far.

        Returns:
          The output and the cache that holds the step's keys and values too.
        """
        queries, keys, values = self._project(x)
        attended, cache = attend(
            rotate(queries, turn),
            rotate(keys, turn),
            values,
            cache,
            inputs,
            scale=self.head_dim**-0.5,
            sliding_window=self.sliding_window,
        )
        return self.o(attended.reshape(x.shape[0], -1)), cache

    def _project(
        self, x: Float[Array, "T M"]
    ) -> tuple[Float[Array, "T H D"], Float[Array, "T K D"], Float[Array, "T K D"]]:
        heads = self.qkv(x).reshape(x.shape[0], -1, self.head_dim)  # [T, H+2K, D]
        last_query, last_key = self.num_heads, self.num_heads + self.num_kv_heads
        queries, keys, values = jnp.split(heads, (last_query, last_key), axis=1)
        if self.qk_norm:
            queries, keys = self.q_norm(queries), self.k_norm(keys)
        return queries, keys, values
