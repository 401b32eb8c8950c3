"""From GGUF metadata to what `config.json` would say.

The table is our own and not that of transformers, which leaves out head sizes of
Qwen, rope scaling, attention windows and biases. A test holds the two against each
other where both have a word.
"""

from typing import Any

import numpy as np

from jengine.errors import CheckpointError, UnsupportedError
from jengine.gguf_header import GgufHeader

# GGUF architecture -> the Hugging Face class. llama.cpp stores Mistral as llama.
ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
_KEYS = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}
_SCALING = {
    "factor": "factor",
    "original_context_length": "original_max_position_embeddings",
    "attn_factor": "attention_factor",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
}
ROPE_FACTORS = "rope_freqs.weight"


def config_from_metadata(header: GgufHeader) -> dict[str, Any]:
    """Return the equal of `config.json`.

    Raises:
      CheckpointError: if a key is missing.
      UnsupportedError: if the architecture or one of its options is not supported.
    """
    name = _architecture(header)
    reader = _Metadata(header, name)
    config = {ours: reader.need(theirs) for theirs, ours in _KEYS.items()}
    heads = config["num_attention_heads"]
    head_dim = _head_dim(reader, config["hidden_size"] // heads)
    window = reader.get("attention.sliding_window")
    architecture = ARCHITECTURES["mistral" if window else name]
    biased = "blk.0.attn_q.bias" in header.tensors
    return config | {
        "architectures": [architecture],
        "num_key_value_heads": reader.get("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "vocab_size": reader.get("vocab_size", _embedding_rows(header)),
        "hidden_act": "silu",
        "rope_parameters": _rope(reader),
        "sliding_window": window,
        "tie_word_embeddings": header.is_tied(),
        "attention_bias": biased,
        "mlp_bias": "blk.0.ffn_up.bias" in header.tensors,
        **_special_ids(header),
    }


def generation_from_metadata(header: GgufHeader) -> dict[str, Any]:
    """Return the equal of `generation_config.json`: the ids that start and stop."""
    return _special_ids(header)


class _Metadata:
    """The keys of one architecture."""

    def __init__(self, header: GgufHeader, architecture: str):
        self.header = header
        self.architecture = architecture

    def get(self, key: str, default: Any = None) -> Any:
        return self.header.metadata.get(f"{self.architecture}.{key}", default)

    def need(self, key: str) -> Any:
        value = self.get(key)
        if value is None:
            raise CheckpointError(
                f"{self.header.path}: the GGUF metadata lacks "
                f"{self.architecture}.{key}; convert the model again"
            )
        return value


def _architecture(header: GgufHeader) -> str:
    name = header.metadata.get("general.architecture")
    experts = header.metadata.get(f"{name}.expert_count", 0)
    if name not in ARCHITECTURES or experts:
        kind = f"{name!r} with experts" if experts else repr(name)
        raise UnsupportedError(
            f"{header.path}: the GGUF architecture {kind} is not supported; "
            f"supported: {', '.join(ARCHITECTURES)}"
        )
    return name


def _head_dim(reader: _Metadata, default: int) -> int:
    head_dim = reader.get("attention.key_length", default)
    rotated = reader.get("rope.dimension_count", head_dim)
    if reader.get("attention.key_length") is None:
        head_dim = rotated
    value_dim = reader.get("attention.value_length", head_dim)
    if not head_dim == rotated == value_dim:
        raise UnsupportedError(
            f"{reader.header.path}: heads with {head_dim} features of which {rotated} "
            f"are rotated, and values with {value_dim}; only equal numbers are "
            "supported"
        )
    return head_dim


def _embedding_rows(header: GgufHeader) -> int:
    embedding = header.tensors.get("token_embd.weight")
    if embedding is None or not embedding.shape:
        raise CheckpointError(f"{header.path}: tensor token_embd.weight is missing")
    return embedding.shape[0]


def _rope(reader: _Metadata) -> dict[str, Any]:
    rope = {"rope_type": "default", "rope_theta": reader.get("rope.freq_base", 1e4)}
    kind = reader.get("rope.scaling.type", "none")
    if ROPE_FACTORS in reader.header.tensors:
        return rope | _frequency_factors(reader.header)
    if kind == "none":
        return rope
    given = {ours: reader.get(f"rope.scaling.{key}") for key, ours in _SCALING.items()}
    rope |= {key: value for key, value in given.items() if value is not None}
    return rope | {"rope_type": kind}


def _frequency_factors(header: GgufHeader) -> dict[str, Any]:
    # The converter stores llama3 scaling as one divisor per frequency, in float32.
    place = header.tensors[ROPE_FACTORS]
    size = 4 * int(np.prod(place.shape))
    if place.type_id != 0 or place.offset + size > header.size:
        raise CheckpointError(
            f"{header.path}: tensor {ROPE_FACTORS} is cut or not stored as F32"
        )
    with header.path.open("rb") as file:
        file.seek(place.offset)
        factors = np.frombuffer(file.read(size), "<f4")
    return {
        "rope_type": "frequency_factors",
        "frequency_factors": [float(factor) for factor in factors],
    }


def _special_ids(header: GgufHeader) -> dict[str, Any]:
    ids = {
        f"{kind}_token_id": header.metadata.get(f"tokenizer.ggml.{kind}_token_id")
        for kind in ("bos", "eos")
    }
    return {key: value for key, value in ids.items() if value is not None}
