"""Runs the model of `models/llama.py` on whole sequences, without pages.

Training uses the class that the engine runs. Only the attention is another: it is
handed to the model, which knows nothing of caches, so that here it can be dense.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int

from models.config import ModelConfig
from models.inputs import StepInputs
from models.kv_cache import KVCache, LayerCache
from models.layers.linear import matmul
from models.llama import Llama


def dense_attention(num_rows: int) -> Any:
    """Return an attention in which each of `num_rows` sequences sees itself only."""

    def attend(
        queries: Float[Array, "T H D"],
        keys: Float[Array, "T K D"],
        values: Float[Array, "T K D"],
        cache: LayerCache,
        inputs: StepInputs,
        *,
        scale: float,
        sliding_window: int | None,
    ) -> tuple[Float[Array, "T H D"], LayerCache]:
        del inputs, sliding_window  # a Llama has none
        q, k, v = (
            x.reshape(num_rows, -1, *x.shape[1:]) for x in (queries, keys, values)
        )
        out = jax.nn.dot_product_attention(q, k, v, scale=scale, is_causal=True)
        return out.reshape(queries.shape), cache

    return attend


def logits(model: Llama, ids: Int[Array, "N S"]) -> Float[Array, "N S V"]:
    """Return the logits after each token of each row; rows start at position 0."""
    num_rows, length = ids.shape
    hidden, _ = model(_inputs(ids), _no_cache(model.config), dense_attention(num_rows))
    out = matmul(hidden, model.embed.weight[...])
    return out.reshape(num_rows, length, -1)


def _inputs(ids: Int[Array, "N S"]) -> StepInputs:
    num_rows, length = ids.shape
    starts = jnp.arange(num_rows + 1, dtype=jnp.int32) * length
    return StepInputs(
        token_ids=ids.reshape(-1),
        positions=jnp.tile(jnp.arange(length, dtype=jnp.int32), num_rows),
        slot_mapping=jnp.zeros(num_rows * length, jnp.int32),
        query_start_loc=starts,
        seq_lens=jnp.full(num_rows, length, jnp.int32),
        block_tables=jnp.zeros((num_rows, 1), jnp.int32),
        logits_indices=starts[1:] - 1,
    )


def _no_cache(config: ModelConfig) -> KVCache:
    nothing = jnp.zeros((0, config.num_kv_heads, 1, config.head_dim), jnp.float32)
    return KVCache(
        tuple(LayerCache(nothing, nothing) for _ in range(config.num_layers))
    )


def initialise(model: Llama, seed: int) -> None:
    """Fill the parameters, which are zeros at first.

    Norms scale by one, weights are normal with deviation 0.02, and those that write to
    the residual stream are smaller by the root of their number, as in GPT-2.
    """
    rng = np.random.default_rng(seed)
    small = (2 * model.config.num_layers) ** -0.5
    for path, leaf in nnx.to_flat_state(nnx.state(model, nnx.Param)):
        values = np.ones(leaf[...].shape, np.float32)
        if path[-1] != "scale":
            deviation = 0.02 * (small if path[-2] in ("o", "down") else 1.0)
            values = deviation * rng.standard_normal(values.shape, np.float32)
        leaf[...] = jnp.asarray(values)
