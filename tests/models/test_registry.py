import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import registry
from models.config import SUPPORTED_ARCHITECTURES, ModelConfig, UnsupportedModelError

LLAMA_3_1_8B = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 8.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
LLAMA_3_1_70B = LLAMA_3_1_8B | {
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_attention_heads": 64,
    "num_hidden_layers": 80,
}


@pytest.mark.parametrize(
    ("raw", "num_parameters", "kv_bytes"),
    [
        (LLAMA_3_1_8B, 8_030_261_248, 131_072),
        (LLAMA_3_1_70B, 70_553_706_496, 327_680),
    ],
)
def test_published_sizes(raw, num_parameters, kv_bytes):
    config = ModelConfig.from_hf(json.loads(json.dumps(raw)))
    _, shapes = registry.abstract_parameters(config, "bfloat16")
    assert sum(math.prod(s.shape) for s in shapes.values()) == num_parameters
    assert {s.dtype for s in shapes.values()} == {jnp.dtype("bfloat16")}
    assert config.kv_bytes_per_token(2) == kv_bytes


def test_every_supported_architecture_resolves():
    for architecture in SUPPORTED_ARCHITECTURES:
        assert callable(registry.resolve(architecture).build)


def test_unknown_architecture_lists_the_known():
    with pytest.raises(UnsupportedModelError, match=r"'GPT2LMHeadModel'.*Qwen3For"):
        registry.resolve("GPT2LMHeadModel")


@pytest.mark.parametrize("tied", [True, False])
def test_head_is_the_embedding_only_when_tied(small_config, tied):
    config = ModelConfig.from_hf(small_config(tie_word_embeddings=tied))
    _, shapes = registry.abstract_parameters(config, "float32")
    params = registry.nest({path: path for path in shapes})
    name = "embed" if tied else "lm_head"
    assert registry.head_weight(params) == (name, "weight")


def test_bind_puts_each_parameter_in_its_place(small_config):
    config = ModelConfig.from_hf(small_config())
    graphdef, shapes = registry.abstract_parameters(config, "float32")
    numbers = {
        path: np.full(shape.shape, i, np.float32)
        for i, (path, shape) in enumerate(shapes.items())
    }
    module = registry.bind(graphdef, registry.nest(numbers))
    for path, wanted in numbers.items():
        found = module
        for key in path:
            found = found[key] if isinstance(key, int) else getattr(found, key)
        np.testing.assert_array_equal(found[...], wanted)


def test_graphdef_of_equal_configs_is_equal(small_config):
    """Otherwise every engine would compile its programs again."""
    left, right = (
        registry.abstract_parameters(ModelConfig.from_hf(small_config()), "float32")[0]
        for _ in range(2)
    )
    assert left == right
    assert hash(left) == hash(right)


def test_building_draws_and_allocates_nothing(small_config):
    config = ModelConfig.from_hf(small_config(vocab_size=2**40, hidden_size=2**20))
    _, shapes = registry.abstract_parameters(config, "float32")
    assert shapes["embed", "weight"].shape == (2**40, 2**20)
    assert all(isinstance(s, jax.ShapeDtypeStruct) for s in shapes.values())
