"""A small random checkpoint of the Llama family that really uses its history.

With the usual initialisation (0.02, tied) a tiny model repeats one token whatever its
prompt, and every test of the cache passes for nothing. Weights of standard
deviation 0.4 and an untied head make it change with every token of its prompt.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jengine.testing.checkpoint_files import config_entries, write_checkpoint

MODEL_TYPES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}


def write_random_checkpoint(
    directory: str | Path,
    architecture: str = "LlamaForCausalLM",
    *,
    seed: int = 0,
    std: float = 0.4,
    generation_config: Mapping[str, Any] | None = None,
    **config_overrides: Any,
) -> Path:
    """Write a random checkpoint; the same arguments give the same bytes.

    The defaults are 2 layers, width 64, 4 query and 2 key and value heads, 320 tokens,
    512 positions, an untied head, float32. Biases and the scales of norms are random
    too where the architecture has them.

    Args:
      directory: where to write config.json and model.safetensors.
      architecture: one of `MODEL_TYPES`.
      seed: of the weights.
      std: standard deviation of the weights.
      generation_config: content of generation_config.json; None writes no file.
      **config_overrides: entries of config.json, such as `head_dim`, `rope_scaling`,
        `attention_bias` or `sliding_window`; also in short form: `num_layers`,
        `num_heads`, `num_kv_heads`, `tie`, `dtype`.

    Returns:
      The directory.

    Raises:
      ValueError: for an architecture not listed.
    """
    if architecture not in MODEL_TYPES:
        known = ", ".join(MODEL_TYPES)
        raise ValueError(f"architecture {architecture!r}: use one of {known}")
    config = _config(architecture) | config_entries(config_overrides)
    config.setdefault("head_dim", _head_dim(config))
    rng = np.random.default_rng(seed)
    tensors = {
        name: _init(rng, name, shape, std) for name, shape in _shapes(config).items()
    }
    return write_checkpoint(
        directory, config, tensors, generation_config=generation_config
    )


def _config(architecture: str) -> dict[str, Any]:
    return {
        "architectures": [architecture],
        "model_type": MODEL_TYPES[architecture],
        "vocab_size": 320,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_act": "silu",
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "mlp_bias": False,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "float32",
    }


def _head_dim(config: Mapping[str, Any]) -> int:
    return config["hidden_size"] // config["num_attention_heads"]


def _shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor, by Hugging Face name, in file order."""
    vocab_size, width = config["vocab_size"], config["hidden_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (vocab_size, width)
    }
    for layer in range(config["num_hidden_layers"]):
        for name, shape in _layer_shapes(config).items():
            shapes[f"model.layers.{layer}.{name}"] = shape
    shapes["model.norm.weight"] = (width,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (vocab_size, width)
    return shapes


def _layer_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    width, mlp_width = config["hidden_size"], config["intermediate_size"]
    head_dim = config["head_dim"]
    q_width = config["num_attention_heads"] * head_dim
    kv_width = config["num_key_value_heads"] * head_dim
    qkv_bias = config["model_type"] == "qwen2" or config["attention_bias"]
    o_bias = config["model_type"] != "qwen2" and config["attention_bias"]
    projections = {
        "self_attn.q_proj": (q_width, width, qkv_bias),
        "self_attn.k_proj": (kv_width, width, qkv_bias),
        "self_attn.v_proj": (kv_width, width, qkv_bias),
        "self_attn.o_proj": (width, q_width, o_bias),
        "mlp.gate_proj": (mlp_width, width, config["mlp_bias"]),
        "mlp.up_proj": (mlp_width, width, config["mlp_bias"]),
        "mlp.down_proj": (width, mlp_width, config["mlp_bias"]),
    }
    norms = {"input_layernorm": width, "post_attention_layernorm": width}
    if config["model_type"] == "qwen3":
        norms |= {"self_attn.q_norm": head_dim, "self_attn.k_norm": head_dim}
    shapes: dict[str, tuple[int, ...]] = {
        f"{name}.weight": (size,) for name, size in norms.items()
    }
    for name, (rows, columns, bias) in projections.items():
        shapes[f"{name}.weight"] = (rows, columns)
        if bias:
            shapes[f"{name}.bias"] = (rows,)
    return shapes


def _init(
    rng: np.random.Generator, name: str, shape: tuple[int, ...], std: float
) -> np.ndarray:
    noise = rng.standard_normal(shape, dtype=np.float32)
    if "norm" in name:
        return (1.0 + 0.2 * noise).astype(np.float32)
    return (std * noise).astype(np.float32)
