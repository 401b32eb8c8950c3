import dataclasses

import pytest

from models.config import (
    SUPPORTED_ARCHITECTURES,
    ModelConfig,
    ModelConfigError,
    UnsupportedModelError,
)


@pytest.fixture
def parse(small_config):
    return lambda *args, **keys: ModelConfig.from_hf(small_config(*args, **keys))


def test_sizes_arrive(parse):
    config = parse(rms_norm_eps=1e-5, tie_word_embeddings=True)
    assert config.architecture == "LlamaForCausalLM"
    assert (config.vocab_size, config.hidden_size) == (96, 32)
    assert (config.intermediate_size, config.num_layers) == (48, 2)
    assert (config.num_heads, config.num_kv_heads, config.head_dim) == (4, 2, 8)
    assert (config.rms_norm_eps, config.max_position_embeddings) == (1e-5, 128)
    assert config.tie_word_embeddings
    assert config.sliding_windows == (None, None)
    assert config.dtype is None
    assert hash(config) == hash(dataclasses.replace(config))


@pytest.mark.parametrize(
    ("architecture", "keys", "qkv", "o", "mlp", "qk_norm"),
    [
        ("LlamaForCausalLM", {}, False, False, False, False),
        ("LlamaForCausalLM", {"attention_bias": True}, True, True, False, False),
        ("LlamaForCausalLM", {"mlp_bias": True}, False, False, True, False),
        ("MistralForCausalLM", {"attention_bias": True}, False, False, False, False),
        ("Qwen2ForCausalLM", {"attention_bias": False}, True, False, False, False),
        ("Qwen3ForCausalLM", {}, False, False, False, True),
        ("Qwen3ForCausalLM", {"attention_bias": True}, True, True, False, True),
    ],
)
def test_ckp_05_switches(parse, architecture, keys, qkv, o, mlp, qk_norm):
    config = parse(architecture, **keys)
    found = (config.qkv_bias, config.o_bias, config.mlp_bias, config.qk_norm)
    assert found == (qkv, o, mlp, qk_norm)


@pytest.mark.parametrize(
    ("architecture", "keys", "windows"),
    [
        ("LlamaForCausalLM", {"sliding_window": 5}, (None, None)),
        ("MistralForCausalLM", {"sliding_window": 5}, (5, 5)),
        ("MistralForCausalLM", {"sliding_window": None}, (None, None)),
        ("MistralForCausalLM", {}, (4096, 4096)),
        ("Qwen2ForCausalLM", {"sliding_window": 5}, (None, None)),
        ("Qwen2ForCausalLM", {"use_sliding_window": True}, (None, None)),
        (
            "Qwen2ForCausalLM",
            {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
            (None, 5),
        ),
        (
            "Qwen3ForCausalLM",
            {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 0},
            (5, 5),
        ),
        (
            "Qwen3ForCausalLM",
            {
                "use_sliding_window": True,
                "sliding_window": 5,
                "layer_types": ["sliding_attention", "full_attention"],
            },
            (5, None),
        ),
    ],
)
def test_windows(parse, architecture, keys, windows):
    assert parse(architecture, **keys).sliding_windows == windows


def test_ckp_05_head_dim(parse):
    assert parse(head_dim=32).head_dim == 32
    assert parse(head_dim=None).head_dim == 8
    assert parse("Qwen3ForCausalLM").head_dim == 128
    assert parse("Qwen3ForCausalLM", head_dim=16).head_dim == 16


def scaled(kind, **inside):
    return {"rope_type": kind, "factor": 4.0, **inside}


LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.mark.parametrize(
    ("stated", "rope", "longest"),
    [
        (64, {"rope_type": "default"}, 64),
        (64, scaled("linear"), 256),
        (64, scaled("linear", factor=2.5), 160),
        (64, scaled("dynamic"), 64),
        (64, scaled("llama3", **LLAMA3, original_max_position_embeddings=16), 64),
        (64, scaled("yarn", original_max_position_embeddings=64), 256),
        (80, scaled("yarn", original_max_position_embeddings=64), 256),
        (256, scaled("yarn", original_max_position_embeddings=64), 256),
        (300, scaled("yarn", original_max_position_embeddings=64), 300),
        (64, scaled("yarn"), 256),
        (256, scaled("yarn", factor=None, original_max_position_embeddings=64), 256),
    ],
)
def test_scaling_extends_the_longest_sequence(parse, stated, rope, longest):
    config = parse(max_position_embeddings=stated, rope_scaling=rope)
    assert config.max_position_embeddings == longest


def test_missing_kv_heads_are_all_heads(parse):
    assert parse(num_key_value_heads=None).num_kv_heads == 4


@pytest.mark.parametrize(
    ("keys", "dtype"),
    [
        ({"torch_dtype": "bfloat16"}, "bfloat16"),
        ({"dtype": "float16"}, "float16"),
        ({"dtype": "float16", "torch_dtype": "float32"}, "float16"),
        ({"torch_dtype": "torch.float32"}, "float32"),
        ({"torch_dtype": None}, None),
    ],
)
def test_ckp_07_dtype_spellings(parse, keys, dtype):
    assert parse(**keys).dtype == dtype


def test_ckp_03_unknown_architecture_lists_the_known(parse):
    with pytest.raises(UnsupportedModelError) as caught:
        parse("BertModel")
    assert "'BertModel'" in str(caught.value)
    assert all(name in str(caught.value) for name in SUPPORTED_ARCHITECTURES)


@pytest.mark.parametrize("architectures", [None, []])
def test_ckp_03_no_architecture(parse, architectures):
    with pytest.raises(ModelConfigError, match="architectures is missing"):
        parse(architectures=architectures)


@pytest.mark.parametrize(
    "key",
    [
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "max_position_embeddings",
    ],
)
def test_missing_key_is_named(small_config, key):
    config = small_config()
    del config[key]
    with pytest.raises(ModelConfigError, match=f"{key} is missing"):
        ModelConfig.from_hf(config)


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"vocab_size": "96"}, "vocab_size is '96'"),
        ({"num_key_value_heads": 3}, "num_key_value_heads is 3.*divisor"),
        ({"num_attention_heads": 5, "num_key_value_heads": 5}, "num_attention_heads"),
        ({"head_dim": 7}, "7 features"),
        ({"rms_norm_eps": -1.0}, "rms_norm_eps"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"architectures": "LlamaForCausalLM"}, "architectures"),
        ({"dtype": 16}, "dtype is 16"),
    ],
)
def test_bad_value_is_named(parse, keys, named):
    with pytest.raises(ModelConfigError, match=named):
        parse(**keys)


@pytest.mark.parametrize("kinds", [["full_attention"], ["full_attention", "linear"]])
def test_layer_types_must_fit(parse, kinds):
    with pytest.raises(ModelConfigError, match="layer_types"):
        parse("Qwen2ForCausalLM", layer_types=kinds)


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; supported: silu"),
        ({"quantization_config": {"quant_method": "awq"}}, "'awq'.*GGUF"),
        ({"rope_scaling": {"type": "longrope"}}, "'longrope'"),
    ],
)
def test_what_is_not_built_is_refused(parse, keys, named):
    with pytest.raises(UnsupportedModelError, match=named):
        parse(**keys)


@pytest.mark.parametrize("nothing", [None, {}])
def test_empty_quantization_config_asks_for_nothing(parse, nothing):
    assert parse(quantization_config=nothing) == parse()


def test_kv_bytes_per_token(parse):
    # keys and values x 2 layers x 2 heads x 8 features
    assert parse().kv_bytes_per_token(4) == 2 * 2 * 2 * 8 * 4
    assert parse().kv_bytes_per_token(2) == 2 * 2 * 2 * 8 * 2
