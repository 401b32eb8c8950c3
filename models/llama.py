"""The decoder of the Llama family: Llama, Mistral, Qwen2 and Qwen3.

They differ in biases, head norms and attention windows only, which `ModelConfig`
states. Parameters keep the checkpoint's `[out, in]` layout; query, key and value
projections are one array, and so are gate and up.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from models.config import ModelConfig
from models.inputs import StepInputs
from models.kv_cache import KVCache, LayerCache
from models.layers.attention import Attention
from models.layers.attention_backend import Attend
from models.layers.embed import Embed
from models.layers.linear import Linear
from models.layers.mlp import MLP
from models.layers.norm import RMSNorm
from models.layers.rope import Rotation, rotation

Path = tuple[str | int, ...]


class DecoderLayer(nnx.Module):
    """Attention and MLP, each on the normalised residual stream and added to it."""

    def __init__(self, config: ModelConfig, layer: int, *, dtype: jnp.dtype):
        width, eps = config.hidden_size, config.rms_norm_eps
        self.input_norm = RMSNorm(width, eps=eps, dtype=dtype)
        self.attention = Attention(config, layer, dtype=dtype)
        self.post_norm = RMSNorm(width, eps=eps, dtype=dtype)
        self.mlp = MLP(config, dtype=dtype)

    def __call__(
        self,
        x: Float[Array, "T M"],
        inputs: StepInputs,
        cache: LayerCache,
        turn: Rotation,
        attend: Attend,
    ) -> tuple[Float[Array, "T M"], LayerCache]:
        """Return the residual stream and the layer's cache after this layer."""
        with jax.named_scope("attention"):
            out, cache = self.attention(self.input_norm(x), inputs, cache, turn, attend)
            x = x + out
        with jax.named_scope("mlp"):
            return x + self.mlp(self.post_norm(x)), cache


class Llama(nnx.Module):
    """Embedding, decoder layers and final norm; the head is a parameter only.

    The head is applied by whoever samples (`registry.head_weight`), since only that
    side knows which rows need logits. Layers are unrolled: a scan over stacked
    weights made a decode step on the CPU four times slower.
    """

    def __init__(self, config: ModelConfig, *, dtype: jnp.dtype):
        self.config = config
        self.embed = Embed(config.vocab_size, config.hidden_size, dtype=dtype)
        self.layers = nnx.List(
            [DecoderLayer(config, i, dtype=dtype) for i in range(config.num_layers)]
        )
        self.norm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps, dtype=dtype)
        if not config.tie_word_embeddings:
            self.lm_head = Linear(
                config.hidden_size, config.vocab_size, bias=False, dtype=dtype
            )

    def __call__(
        self, inputs: StepInputs, kv: KVCache, attend: Attend
    ) -> tuple[Float[Array, "T M"], KVCache]:
        """Run the step's tokens.

        Args:
          inputs: the step's arrays.
          kv: the cache before the step.
          attend: the attention backend.

        Returns:
          The normalised hidden state of each token, and the cache with the keys and
          values of the step's tokens.
        """
        with jax.named_scope("embed"):
            x = self.embed(inputs.token_ids)
            turn = rotation(self.config.rope, self.config.head_dim, inputs.positions)
            # Without this XLA weighs computing each of these anew in every layer,
            # which at 32 layers took a fourth of the compiler's time on a GPU.
            turn, inputs = jax.lax.optimization_barrier((turn, inputs))
        caches = []
        for number, (layer, cache) in enumerate(
            zip(self.layers, kv.layers, strict=True)
        ):
            with jax.named_scope(f"layer_{number}"):
                graphdef, params = nnx.split(layer)
                x, cache = _run_layer(graphdef, params, x, inputs, cache, turn, attend)
            caches.append(cache)
        with jax.named_scope("final_norm"):
            return self.norm(x), KVCache(layers=tuple(caches))


# The jit lets layers that are alike share one trace: most of what a start takes that
# finds its programs on disk is tracing them.
@functools.partial(jax.jit, static_argnames=("graphdef", "attend"))
def _run_layer(
    graphdef: nnx.GraphDef,
    params: Any,
    x: Float[Array, "T M"],
    inputs: StepInputs,
    cache: LayerCache,
    turn: Rotation,
    attend: Attend,
) -> tuple[Float[Array, "T M"], LayerCache]:
    return nnx.merge(graphdef, params)(x, inputs, cache, turn, attend)


def parameter_sources(config: ModelConfig) -> dict[Path, tuple[str, ...]]:
    """Return for each parameter the checkpoint tensors that make it.

    Several tensors are concatenated on axis 0, in the order given.
    """
    sources: dict[Path, tuple[str, ...]] = {
        ("embed", "weight"): ("model.embed_tokens.weight",),
        ("norm", "scale"): ("model.norm.weight",),
    }
    if not config.tie_word_embeddings:
        sources["lm_head", "weight"] = ("lm_head.weight",)
    for layer in range(config.num_layers):
        for path, names in _layer_sources(config).items():
            full = tuple(f"model.layers.{layer}.{name}" for name in names)
            sources["layers", layer, *path] = full
    return sources


def _layer_sources(config: ModelConfig) -> dict[Path, tuple[str, ...]]:
    sources: dict[Path, tuple[str, ...]] = {
        ("input_norm", "scale"): ("input_layernorm.weight",),
        ("post_norm", "scale"): ("post_attention_layernorm.weight",),
    }
    if config.qk_norm:
        sources["attention", "q_norm", "scale"] = ("self_attn.q_norm.weight",)
        sources["attention", "k_norm", "scale"] = ("self_attn.k_norm.weight",)
    for path, projections, bias in (
        (("attention", "qkv"), ("q", "k", "v"), config.qkv_bias),
        (("attention", "o"), ("o",), config.o_bias),
        (("mlp", "gate_up"), ("gate", "up"), config.mlp_bias),
        (("mlp", "down"), ("down",), config.mlp_bias),
    ):
        module = "self_attn" if path[0] == "attention" else "mlp"
        for leaf in ("weight", "bias") if bias else ("weight",):
            sources[*path, leaf] = tuple(
                f"{module}.{projection}_proj.{leaf}" for projection in projections
            )
    return sources
