"""Configs of public models, and surveys of them."""

from collections.abc import Callable
from typing import Any

import pytest

from jengine.aot.request import SurveyRequest

# The public figures of meta-llama/Llama-3.1-8B and Llama-3.2-1B.
_LLAMA_3 = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "max_position_embeddings": 131072,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
_SCALING = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}
CONFIGS: dict[str, dict[str, Any]] = {
    "8b": _LLAMA_3
    | {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "tie_word_embeddings": False,
        "rope_scaling": _SCALING | {"factor": 8.0},
    },
    "1b": _LLAMA_3
    | {
        "hidden_size": 2048,
        "head_dim": 64,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "tie_word_embeddings": True,
        "rope_scaling": _SCALING | {"factor": 32.0},
    },
}


@pytest.fixture(scope="session")
def config_of() -> Callable[..., dict[str, Any]]:
    """Returns a public model's config.json, with some values replaced."""
    return lambda name, **changes: CONFIGS[name] | changes


@pytest.fixture(scope="session")
def make_request() -> Callable[..., SurveyRequest]:
    """Makes requests for a public model on an H200."""

    def make(name: str = "8b", changes: Any = None, **fields: Any) -> SurveyRequest:
        config = CONFIGS[name] | (changes or {})
        return SurveyRequest(
            **({"model": name, "config": config, "target": "h200"} | fields)
        )

    return make
