"""A Llama checkpoint whose next-token logits are known exactly.

The logits depend on the last token only: every output and down projection is zero, so
the residual stream stays the token's embedding, which is a unit vector; the head
then reads one row of the wanted table. Attention and MLP still run, on random weights,
and their results are multiplied by zero: a NaN that leaks from one request into another
shows up. What such a model cannot show is a mistake in the cached keys and values,
because it ignores its history; `random_llama` is for that.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jengine.testing.checkpoint_files import config_entries, write_checkpoint

MarkovTable = np.ndarray | Mapping[int, np.ndarray]

FORBIDDEN = -1e4
"""Logit of a token that must never be drawn."""


def scripted(
    sequence: Sequence[int], vocab_size: int, *, strength: float = 20.0
) -> dict[int, np.ndarray]:
    """Make a table under which greedy decoding emits a chosen sequence.

    Args:
      sequence: distinct ids; each leads to the next, the last leads nowhere.
      vocab_size: length of a row.
      strength: logit of the wanted successor; all others have 0.

    Raises:
      ValueError: if an id occurs twice; one token has one successor.
    """
    if len(set(sequence)) != len(sequence):
        raise ValueError(f"ids of a script must be distinct, got {list(sequence)}")
    pairs = itertools.pairwise(sequence)
    return {token: _one_hot(after, vocab_size, strength) for token, after in pairs}


def cycle(
    sequence: Sequence[int], vocab_size: int, *, strength: float = 20.0
) -> dict[int, np.ndarray]:
    """Make a script whose last token leads back to the first."""
    table = scripted(sequence, vocab_size, strength=strength)
    return table | {sequence[-1]: _one_hot(sequence[0], vocab_size, strength)}


def uniform(
    tokens: Sequence[int], vocab_size: int, *, after: Iterable[int] = ()
) -> dict[int, np.ndarray]:
    """Make a table that draws from `tokens` with equal chance, and from nothing else.

    Args:
      tokens: the ids that may be drawn; each is followed by the same distribution.
      vocab_size: length of a row.
      after: further ids followed by it, such as the last ids of prompts.
    """
    row = np.full(vocab_size, FORBIDDEN, dtype=np.float32)
    row[list(tokens)] = 0.0
    return dict.fromkeys([*tokens, *after], row)


def write_markov_checkpoint(
    directory: str | Path,
    logits: MarkovTable,
    *,
    vocab_size: int = 320,
    hidden_size: int = 320,
    eos_token_id: int | Sequence[int] | None = 2,
    generation_config: Mapping[str, Any] | None = None,
    nan_tokens: Sequence[int] = (),
    **config_overrides: Any,
) -> Path:
    """Write a checkpoint whose logits after token `t` are `logits[t]`.

    Tokens without a row are followed by equal logits. Rows that are equal share a
    dimension of the hidden state, so `hidden_size` limits the distinct rows, not the
    vocabulary. Heads have 64 dimensions and there is one key and value head.

    Args:
      directory: where to write config.json and model.safetensors.
      logits: rows of `vocab_size` numbers by token id, or an array of the first rows.
      vocab_size: rows of the embedding and of the head.
      hidden_size: a multiple of 64.
      eos_token_id: as in config.json.
      generation_config: content of generation_config.json; None writes no file.
      nan_tokens: ids whose embedding is NaN.
      **config_overrides: further entries of config.json, replacing those made here:
        `num_layers`, `max_position_embeddings`, `dtype` (float32, float16, bfloat16).

    Returns:
      The directory.

    Raises:
      ValueError: if there are more distinct rows than dimensions.
    """
    config = _config(vocab_size, hidden_size) | config_entries(config_overrides)
    config["eos_token_id"] = (
        list(eos_token_id) if isinstance(eos_token_id, Sequence) else eos_token_id
    )
    slots, rows = _share_slots(logits, hidden_size)
    embedding = np.zeros((vocab_size, hidden_size), dtype=np.float32)
    embedding[list(slots), list(slots.values())] = 1.0
    embedding[list(nan_tokens)] = np.nan
    head = np.zeros((vocab_size, hidden_size), dtype=np.float32)
    # RMSNorm maps a unit vector to 1 / sqrt(1/H + eps) in its dimension.
    scale = np.sqrt(1.0 / hidden_size + config["rms_norm_eps"])
    for slot, row in enumerate(rows):
        head[:, slot] = np.asarray(row, dtype=np.float64) * scale
    tensors = _layers(config) | {
        "model.embed_tokens.weight": embedding,
        "model.norm.weight": np.ones(hidden_size, dtype=np.float32),
        "lm_head.weight": head,
    }
    return write_checkpoint(
        directory, config, tensors, generation_config=generation_config
    )


def _one_hot(token: int, vocab_size: int, strength: float) -> np.ndarray:
    row = np.zeros(vocab_size, dtype=np.float32)
    row[token] = strength
    return row


def _share_slots(
    logits: MarkovTable, hidden_size: int
) -> tuple[dict[int, int], list[np.ndarray]]:
    """Give each distinct row a dimension; return token -> dimension, and the rows."""
    table = dict(enumerate(logits)) if isinstance(logits, np.ndarray) else logits
    slots: dict[int, int] = {}
    rows: list[np.ndarray] = []
    known: dict[bytes, int] = {}
    for token, row in table.items():
        key = np.asarray(row, dtype=np.float64).tobytes()
        if key not in known:
            known[key] = len(rows)
            rows.append(row)
        slots[token] = known[key]
    if len(rows) > hidden_size:
        raise ValueError(
            f"{len(rows)} distinct rows of logits, but hidden_size {hidden_size} "
            f"allows {hidden_size}: raise hidden_size"
        )
    return slots, rows


def _config(vocab_size: int, hidden_size: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab_size,
        "hidden_size": hidden_size,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": hidden_size // 64,
        "num_key_value_heads": 1,
        "head_dim": 64,
        "hidden_act": "silu",
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "torch_dtype": "float32",
    }


def _layers(config: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Random inputs of attention and MLP, zero outputs."""
    rng = np.random.default_rng(0)
    width, mlp_width = config["hidden_size"], config["intermediate_size"]
    q_width = config["num_attention_heads"] * config["head_dim"]
    kv_width = config["num_key_value_heads"] * config["head_dim"]
    random = {
        "self_attn.q_proj": (q_width, width),
        "self_attn.k_proj": (kv_width, width),
        "self_attn.v_proj": (kv_width, width),
        "mlp.gate_proj": (mlp_width, width),
        "mlp.up_proj": (mlp_width, width),
    }
    zero = {"self_attn.o_proj": (width, q_width), "mlp.down_proj": (width, mlp_width)}
    tensors: dict[str, np.ndarray] = {}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for name, shape in random.items():
            weight = 0.1 * rng.standard_normal(shape, dtype=np.float32)
            tensors[f"{prefix}{name}.weight"] = weight
        for name, shape in zero.items():
            tensors[f"{prefix}{name}.weight"] = np.zeros(shape, dtype=np.float32)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{prefix}{name}.weight"] = np.ones(width, dtype=np.float32)
    return tensors
