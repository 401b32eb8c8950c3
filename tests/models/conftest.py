"""Run a model without an engine, and build its reference in transformers."""

import dataclasses
import functools
import json
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import registry
from models.config import ModelConfig
from models.inputs import StepInputs
from models.kv_cache import KVCache, LayerCache

BLOCK_SIZE, NUM_BLOCKS = 8, 12
SMALL = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}


def paged_attend(
    queries, keys, values, cache, inputs, *, scale, sliding_window
) -> tuple[jax.Array, LayerCache]:
    """Write by slot, gather each token's whole table, mask, softmax: no cleverness."""
    cache = LayerCache(
        keys=_write(cache.keys, keys, inputs.slot_mapping),
        values=_write(cache.values, values, inputs.slot_mapping),
    )
    num_tokens, num_heads, head_dim = queries.shape
    rows = jnp.searchsorted(
        inputs.query_start_loc[1:], jnp.arange(num_tokens), side="right"
    )
    tables = inputs.block_tables[jnp.minimum(rows, inputs.block_tables.shape[0] - 1)]
    kv_shape = (num_tokens, -1, keys.shape[1], head_dim)  # [T, P * B, K, D]
    k = jnp.swapaxes(cache.keys[tables], 2, 3).reshape(kv_shape)
    v = jnp.swapaxes(cache.values[tables], 2, 3).reshape(kv_shape)
    grouped = queries.reshape(num_tokens, keys.shape[1], -1, head_dim)
    scores = jnp.einsum("tkgd,tskd->tkgs", grouped, k).astype(jnp.float32) * scale
    place = jnp.arange(k.shape[1])[None, :]
    seen = place <= inputs.positions[:, None]
    if sliding_window is not None:
        seen &= place > inputs.positions[:, None] - sliding_window
    weights = jax.nn.softmax(jnp.where(seen[:, None, None, :], scores, -1e30), axis=-1)
    out = jnp.einsum("tkgs,tskd->tkgd", weights.astype(v.dtype), v)
    return out.reshape(num_tokens, num_heads, head_dim), cache


def _write(cache, new, slots):
    num_blocks, heads, block_size, head_dim = cache.shape
    flat = jnp.swapaxes(cache, 1, 2).reshape(-1, heads, head_dim)
    flat = flat.at[slots].set(new, mode="drop")
    return jnp.swapaxes(flat.reshape(num_blocks, block_size, heads, head_dim), 1, 2)


@functools.partial(jax.jit, static_argnums=0)
def forward(graphdef, params, inputs, kv):
    """Logits of the wanted rows and the new cache."""
    module = registry.bind(graphdef, params)
    hidden, kv = module(inputs, kv, paged_attend)
    head = registry.head_weight(params)
    return jnp.dot(hidden, head.T).astype(jnp.float32), kv


@dataclasses.dataclass
class Harness:
    """One model, one sequence, a paged cache in an order that is not the identity."""

    config: ModelConfig
    params: dict[str, Any]
    dtype: str = "float32"

    def __post_init__(self):
        self.graphdef, _ = registry.abstract_parameters(self.config, self.dtype)
        self.blocks = np.random.default_rng(0).permutation(NUM_BLOCKS - 1) + 1
        shape = (NUM_BLOCKS, self.config.num_kv_heads, BLOCK_SIZE, self.config.head_dim)
        zero = jnp.zeros(shape, self.dtype)
        layer = LayerCache(keys=zero, values=zero)
        self.kv = KVCache(layers=(layer,) * self.config.num_layers)
        self.length = 0

    def run(self, ids, *, width=32) -> np.ndarray:
        """Append these tokens, padded to a width; return the logits after each."""
        inputs = self.inputs(ids, max(0, width - len(ids)))
        logits, self.kv = forward(self.graphdef, self.params, inputs, self.kv)
        self.length += len(ids)
        return np.asarray(logits)[: len(ids)]

    def inputs(self, ids, padding=0) -> StepInputs:
        positions = self.length + np.arange(len(ids))
        slots = self.blocks[positions // BLOCK_SIZE] * BLOCK_SIZE
        slots = slots + positions % BLOCK_SIZE

        def pad(array, value):
            return jnp.asarray(
                np.pad(np.asarray(array), (0, padding), constant_values=value),
                jnp.int32,
            )

        return StepInputs(
            token_ids=pad(ids, 0),
            positions=pad(positions, 0),
            slot_mapping=pad(slots, NUM_BLOCKS * BLOCK_SIZE),
            query_start_loc=jnp.asarray([0, len(ids)], jnp.int32),
            seq_lens=jnp.asarray([self.length + len(ids)], jnp.int32),
            block_tables=jnp.asarray(self.blocks[None, :], jnp.int32),
            logits_indices=pad(np.arange(len(ids)), 0),
        )


def parameters(config: ModelConfig, tensors: dict[str, np.ndarray], dtype="float32"):
    """The nested parameters, made from tensors under their Hugging Face names."""
    sources = registry.resolve(config.architecture).parameter_sources(config)
    return registry.nest(
        {
            path: jnp.asarray(np.concatenate([tensors[name] for name in names]), dtype)
            for path, names in sources.items()
        }
    )


@pytest.fixture(scope="session")
def make_harness() -> Callable[..., Harness]:
    def make(config: dict[str, Any], tensors, dtype="float32") -> Harness:
        parsed = ModelConfig.from_hf(config)
        return Harness(parsed, parameters(parsed, tensors, dtype), dtype)

    return make


@pytest.fixture(scope="session")
def small_config() -> Callable[..., dict[str, Any]]:
    """A `config.json` of a tiny model; keywords override or add keys."""

    def make(architecture="LlamaForCausalLM", **keys) -> dict[str, Any]:
        return {**SMALL, "architectures": [architecture], **keys}

    return make


@dataclasses.dataclass
class Reference:
    """A random model in transformers: its config, its tensors, its logits."""

    model: Any
    config: dict[str, Any]
    tensors: dict[str, np.ndarray]

    def logits(self, ids) -> np.ndarray:
        import torch

        with torch.no_grad():
            return self.model(torch.tensor([list(ids)])).logits[0].float().numpy()


@pytest.fixture(scope="session")
def make_reference() -> Callable[..., Reference]:
    """Build the reference of a `config.json`.

    All weights are drawn wide (with the usual 0.02 such a model forgets its
    history), and biases and norms are random too: zeros and ones hide a dropped one.
    """
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")

    def make(config: dict[str, Any], seed=0) -> Reference:
        name = config["architectures"][0].removesuffix("ForCausalLM")
        parsed = getattr(transformers, f"{name}Config").from_dict(dict(config))
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(parsed).eval().float()
        with torch.no_grad():
            for key, value in model.named_parameters():
                mean = 1.0 if "norm" in key else 0.0
                value.copy_(mean + 0.3 * torch.randn(value.shape))
        tensors = {key: value.numpy() for key, value in model.state_dict().items()}
        saved = json.loads(model.config.to_json_string(use_diff=False))
        return Reference(model, {**saved, **config}, tensors)

    return make
