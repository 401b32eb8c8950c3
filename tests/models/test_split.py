import pytest

from models.config import ModelConfig, UnsupportedModelError
from models.llama import parameter_sources
from models.split import ParameterSplit, local_config, parameter_split

CONFIG = ModelConfig.from_hf(
    {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 8,
        "intermediate_size": 24,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 6,
        "num_hidden_layers": 2,
        "vocab_size": 10,
        "max_position_embeddings": 64,
        "attention_bias": True,
        "mlp_bias": True,
    }
)


def test_a_device_runs_its_share_of_heads_features_and_ids():
    local = local_config(CONFIG, 2)
    assert (local.num_heads, local.num_kv_heads, local.head_dim) == (2, 1, 6)
    assert (local.intermediate_size, local.vocab_size) == (12, 5)
    assert (local.hidden_size, local.num_layers) == (8, 2)
    assert local_config(CONFIG, 1) == CONFIG


def test_sizes_that_do_not_divide_are_named():
    message = (
        r"over 4 devices: num_kv_heads = 2, vocab_size = 10 are not divisible by 4"
    )
    with pytest.raises(UnsupportedModelError, match=message):
        local_config(CONFIG, 4)
    with pytest.raises(UnsupportedModelError, match=r"num_heads = 4, .* are not"):
        local_config(CONFIG, 3)


def test_each_parameter_is_split_or_not():
    found = {path: parameter_split(CONFIG, path) for path in parameter_sources(CONFIG)}
    layer = {
        path[2:]: split for path, split in found.items() if path[:2] == ("layers", 1)
    }
    joined = ParameterSplit(0, (24, 12, 12))
    assert layer == {
        ("input_norm", "scale"): None,
        ("post_norm", "scale"): None,
        ("attention", "qkv", "weight"): joined,
        ("attention", "qkv", "bias"): joined,
        ("attention", "o", "weight"): ParameterSplit(1, (24,)),
        ("attention", "o", "bias"): None,
        ("mlp", "gate_up", "weight"): ParameterSplit(0, (24, 24)),
        ("mlp", "gate_up", "bias"): ParameterSplit(0, (24, 24)),
        ("mlp", "down", "weight"): ParameterSplit(1, (24,)),
        ("mlp", "down", "bias"): None,
    }
    vocabulary = ParameterSplit(0, (10,))
    assert found["embed", "weight"] == found["lm_head", "weight"] == vocabulary
    assert found["norm", "scale"] is None
