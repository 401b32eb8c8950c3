"""Small checkpoints on disk, made with numpy, safetensors and gguf only."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from jengine.checkpoint import Target
from models import registry
from models.config import ModelConfig

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 96,
    "hidden_size": 64,  # a multiple of the 32 values of a quantised block
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
}


def targets_of(config: dict[str, Any]) -> dict[Any, Target]:
    """What the model that a config describes wants to be filled with."""
    parsed = ModelConfig.from_hf(config)
    _, shapes = registry.abstract_parameters(parsed, "float32")
    sources = registry.resolve(parsed.architecture).parameter_sources(parsed)
    return {path: Target(shapes[path].shape, sources[path]) for path in shapes}


def tensors_of(config: dict[str, Any], seed=0) -> dict[str, np.ndarray]:
    """Random tensors under their Hugging Face names."""
    rng = np.random.default_rng(seed)
    parsed = ModelConfig.from_hf(config)
    rows = {
        "q_proj": parsed.num_heads * parsed.head_dim,
        "k_proj": parsed.num_kv_heads * parsed.head_dim,
        "v_proj": parsed.num_kv_heads * parsed.head_dim,
    }
    tensors = {}
    for target in targets_of(config).values():
        for name in target.names:
            equal = target.shape[0] // len(target.names)
            size = rows.get(name.split(".")[-2], equal)
            values = rng.normal("norm" in name, 0.4, (size, *target.shape[1:]))
            tensors[name] = values.astype(np.float32)
    return tensors


@pytest.fixture(scope="session")
def make_config() -> Callable[..., dict[str, Any]]:
    return lambda **keys: {**CONFIG, **keys}


@pytest.fixture(scope="session")
def make_targets() -> Callable[..., dict[Any, Target]]:
    return targets_of


@pytest.fixture(scope="session")
def make_tensors() -> Callable[..., dict[str, np.ndarray]]:
    return tensors_of


@pytest.fixture
def write_folder(tmp_path) -> Callable[..., Path]:
    """Write config and tensors, split over as many files as there are parts."""

    def write(config, *parts, generation=None, folder="checkpoint") -> Path:
        path = tmp_path / folder
        path.mkdir(exist_ok=True)
        (path / "config.json").write_text(json.dumps(config))
        if generation is not None:
            (path / "generation_config.json").write_text(json.dumps(generation))
        if len(parts) == 1:
            save_file(parts[0], path / "model.safetensors")
            return path
        weight_map = {}
        for i, part in enumerate(parts, 1):
            file = f"model-{i:05}-of-{len(parts):05}.safetensors"
            save_file(part, path / file)
            weight_map |= dict.fromkeys(part, file)
        index = {"metadata": {}, "weight_map": weight_map}
        (path / "model.safetensors.index.json").write_text(json.dumps(index))
        return path

    return write


@pytest.fixture
def sharded(write_folder) -> Path:
    """A whole checkpoint in three shards."""
    items = list(tensors_of(CONFIG).items())
    return write_folder(CONFIG, dict(items[:9]), dict(items[9:15]), dict(items[15:]))


GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


_VALUE_TYPES = {
    int: gguf.GGUFValueType.UINT32,
    float: gguf.GGUFValueType.FLOAT32,
    str: gguf.GGUFValueType.STRING,
    list: gguf.GGUFValueType.ARRAY,
}


def gguf_name(name: str) -> str:
    stem, leaf = name.rsplit(".", 1)
    if stem in GGUF_NAMES:
        return f"{GGUF_NAMES[stem]}.{leaf}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{GGUF_NAMES[part]}.{leaf}"


def permute(values: np.ndarray, num_heads: int) -> np.ndarray:
    """The row order that llama.cpp's converter gives query and key projections."""
    halves = values.reshape(num_heads, 2, -1, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)


@pytest.fixture
def write_gguf(tmp_path) -> Callable[..., Path]:
    """Write a GGUF file as llama.cpp's converter would."""

    def write(arch, config, tensors, kind="F32", extra=None, keys=None) -> Path:
        path = tmp_path / f"{arch}-{kind}.gguf"
        writer = gguf.GGUFWriter(path, arch)
        writer.add_block_count(config["num_hidden_layers"])
        writer.add_context_length(config["max_position_embeddings"])
        writer.add_embedding_length(config["hidden_size"])
        writer.add_feed_forward_length(config["intermediate_size"])
        writer.add_head_count(config["num_attention_heads"])
        writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        writer.add_rope_freq_base(5e5)
        if "head_dim" in config:
            writer.add_key_length(config["head_dim"])
            writer.add_value_length(config["head_dim"])
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list([f"t{i}" for i in range(config["vocab_size"])])
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        for key, value in (keys or {}).items():
            kind_of_value = _VALUE_TYPES[type(value)]
            writer.kv_data[0][key] = gguf.GGUFValue(value, kind_of_value)
        for name, values in (tensors | (extra or {})).items():
            _add_tensor(writer, arch, config, name, values, kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


def _add_tensor(writer, arch, config, name, values, kind):
    for part, heads in (("q", "num_attention_heads"), ("k", "num_key_value_heads")):
        if arch == "llama" and f".{part}_proj." in name:
            values = permute(values, config[heads])
    # Like the converter: vectors stay float32 whatever the file's type is.
    stored = gguf.GGMLQuantizationType[kind if values.ndim > 1 else "F32"]
    named = gguf_name(name) if name.startswith(("model.", "lm_head")) else name
    raw = gguf.quantize(values, stored)
    writer.add_tensor(named, raw, raw_dtype=stored)
