"""From GGUF metadata to what `config.json` would say.

The table is our own and not that of transformers, which leaves out head sizes of
Qwen, rope scaling, attention windows and biases. A test holds the two against each
other where both have a word.
"""

from typing import Any

import numpy as np

from jengine.errors import CheckpointError, UnsupportedError, shorten
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
# llama.cpp applies a window to none of the others, whatever their files say.
_WINDOWED = ("llama", "mistral")
_SCALING = {
    "original_context_length": "original_max_position_embeddings",
    "attn_factor": "attention_factor",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
}
_NO_SCALING = (None, 0, 1)  # values of the factor
ROPE_FACTORS = "rope_freqs.weight"


def config_from_metadata(header: GgufHeader) -> dict[str, Any]:
    """Return the equal of `config.json`.

    Raises:
      CheckpointError: if a key is missing or of the wrong kind.
      UnsupportedError: if the architecture or one of its options is not supported, or
        the file is one of several.
    """
    _refuse_split(header)
    name = _architecture(header)
    reader = _Metadata(header, name)
    config = {ours: reader.positive(theirs) for theirs, ours in _KEYS.items()}
    heads = config["num_attention_heads"]
    head_dim = _head_dim(reader, config["hidden_size"] // heads)
    window = reader.get("attention.sliding_window") if name in _WINDOWED else None
    architecture = ARCHITECTURES["mistral" if window else name]
    biased = "blk.0.attn_q.bias" in header.tensors
    return config | {
        "architectures": [architecture],
        "num_key_value_heads": reader.positive("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "vocab_size": _embedding_rows(header),  # the key vocab_size may be stale
        "hidden_act": "silu",
        "rope_parameters": _rope(reader),
        "sliding_window": window,
        "tie_word_embeddings": header.is_tied(),
        "attention_bias": biased,
        "mlp_bias": "blk.0.ffn_up.bias" in header.tensors,
        **_special_ids(header),
    }


def generation_from_metadata(header: GgufHeader) -> dict[str, Any]:
    """Return the equal of `generation_config.json`: the ids that start and stop.

    Chat models also stop at the end of a turn or of a message, which have keys of
    their own; like a list in `generation_config.json` they join the main id.
    """
    ids = _special_ids(header)
    ends = [ids.get("eos_token_id")]
    for kind in ("eot_token_id", "eom_token_id", "eos_token_ids"):
        value = header.metadata.get(f"tokenizer.ggml.{kind}")
        ends += value if isinstance(value, list) else [value]
    named = list(dict.fromkeys(end for end in ends if end is not None))
    if len(named) > 1 or "eos_token_id" not in ids:
        return ids | {"eos_token_id": named}
    return ids


class _Metadata:
    """The keys of one architecture."""

    def __init__(self, header: GgufHeader, architecture: str):
        self.header = header
        self.architecture = architecture

    def get(self, key: str, default: Any = None) -> Any:
        return self.header.metadata.get(f"{self.architecture}.{key}", default)

    def positive(self, key: str, default: Any = None) -> Any:
        value = self.get(key, default)
        if value is None:
            raise CheckpointError(
                f"{self.header.path}: the GGUF metadata lacks "
                f"{self.architecture}.{key}; convert the model again"
            )
        if not isinstance(value, int | float) or not value > 0:
            raise CheckpointError(
                f"{self.header.path}: {self.architecture}.{key} is {shorten(value)}; "
                "only one positive number, the same for all layers, is supported; "
                "take another model, or convert this one again"
            )
        return value


def _refuse_split(header: GgufHeader) -> None:
    count = header.metadata.get("split.count", 0)
    if isinstance(count, int) and count > 1:
        raise UnsupportedError(
            f"{header.path}: one of the {count} files of a split GGUF model "
            "(split.count); only whole files are supported: merge them with "
            "llama.cpp's `llama-gguf-split --merge FIRST OUTPUT`, and give OUTPUT"
        )


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
    # As in llama.cpp: linear is the default kind, and older files have another key.
    kind = reader.get("rope.scaling.type", "linear")
    factor = reader.get("rope.scaling.factor", reader.get("rope.scale_linear"))
    if ROPE_FACTORS in reader.header.tensors:
        return rope | _frequency_factors(reader.header, kind, factor)
    if kind == "none" or (kind == "linear" and factor in _NO_SCALING):
        return rope
    given = {ours: reader.get(f"rope.scaling.{key}") for key, ours in _SCALING.items()}
    given["factor"] = factor
    rope |= {key: value for key, value in given.items() if value is not None}
    return rope | {"rope_type": kind}


def _frequency_factors(header: GgufHeader, kind: str, factor: Any) -> dict[str, Any]:
    """Return llama3 scaling, of which a file holds one divisor per frequency.

    Linear scaling divides all frequencies alike, so its factor joins the divisors.
    """
    if kind not in ("none", "linear"):
        raise UnsupportedError(
            f"{header.path}: rope.scaling.type is {kind!r} beside the tensor "
            f"{ROPE_FACTORS}; only 'none' and 'linear' are supported there"
        )
    common = 1.0 if kind == "none" or factor in _NO_SCALING else float(factor)
    return {
        "rope_type": "frequency_factors",
        "frequency_factors": [divisor * common for divisor in _divisors(header)],
    }


def _divisors(header: GgufHeader) -> list[float]:
    place = header.tensors[ROPE_FACTORS]
    size = 4 * int(np.prod(place.shape))
    if place.type_id != 0 or place.offset + size > header.size:
        raise CheckpointError(
            f"{header.path}: tensor {ROPE_FACTORS} is cut or not stored as F32"
        )
    with header.path.open("rb") as file:
        file.seek(place.offset)
        return np.frombuffer(file.read(size), "<f4").astype(float).tolist()


def _special_ids(header: GgufHeader) -> dict[str, Any]:
    ids = {
        f"{kind}_token_id": header.metadata.get(f"tokenizer.ggml.{kind}_token_id")
        for kind in ("bos", "eos")
    }
    return {key: value for key, value in ids.items() if value is not None}
