import numpy as np
import pytest

from jengine.checkpoint.gguf_config import (
    ARCHITECTURES,
    ROPE_FACTORS,
    config_from_metadata,
    generation_from_metadata,
)
from jengine.errors import CheckpointError, UnsupportedError
from jengine.gguf_header import GgufHeader, read_header
from models.config import ModelConfig


@pytest.fixture
def header(write_gguf, make_config, make_tensors):
    """Header of a file; keywords of the config, `keys` the metadata to add."""

    def make(arch="llama", keys=None, extra=None, **config_keys) -> GgufHeader:
        name = ARCHITECTURES.get(arch, "LlamaForCausalLM")
        config = make_config(architectures=[name], **config_keys)
        tensors = make_tensors(config)
        return read_header(write_gguf(arch, config, tensors, extra=extra, keys=keys))

    return make


@pytest.mark.parametrize(
    ("arch", "keys"),
    [
        ("llama", {}),
        ("llama", {"head_dim": 32}),
        ("llama", {"tie_word_embeddings": True}),
        ("llama", {"attention_bias": True, "mlp_bias": True}),
        ("qwen2", {}),
        ("qwen3", {"head_dim": 32}),
    ],
)
def test_model_is_that_of_the_config_json(header, make_config, arch, keys):
    found = ModelConfig.from_hf(config_from_metadata(header(arch, **keys)))
    config = make_config(architectures=[ARCHITECTURES[arch]], rope_theta=5e5, **keys)
    wanted = ModelConfig.from_hf(config)
    assert found.rms_norm_eps == pytest.approx(wanted.rms_norm_eps)
    for field in ModelConfig.__dataclass_fields__:
        if field != "rms_norm_eps":
            assert getattr(found, field) == getattr(wanted, field), field


def test_ids_that_start_and_stop(header):
    assert generation_from_metadata(header()) == {"bos_token_id": 1, "eos_token_id": 2}
    assert config_from_metadata(header())["eos_token_id"] == 2


@pytest.mark.parametrize(
    ("keys", "ends"),
    [
        ({"eot_token_id": 5, "eom_token_id": 6}, [2, 5, 6]),
        ({"eos_token_ids": [2, 7, 8]}, [2, 7, 8]),
        ({"eot_token_id": 5, "eos_token_ids": [5, 2]}, [2, 5]),
        ({"eot_token_id": 2}, 2),
    ],
)
def test_ends_of_turns_and_messages_also_stop(header, keys, ends):
    file = header(keys={f"tokenizer.ggml.{key}": ids for key, ids in keys.items()})
    assert generation_from_metadata(file)["eos_token_id"] == ends
    assert config_from_metadata(file)["eos_token_id"] == 2
    eos = "tokenizer.ggml.eos_token_id"
    metadata = {key: value for key, value in file.metadata.items() if key != eos}
    without = GgufHeader(file.path, file.size, metadata, file.tensors)
    rest = generation_from_metadata(without)["eos_token_id"]
    assert {2, *rest} == set(ends if isinstance(ends, list) else [ends])


def test_window_makes_it_a_mistral(header):
    found = config_from_metadata(header(keys={"llama.attention.sliding_window": 9}))
    config = ModelConfig.from_hf(found)
    assert config.architecture == "MistralForCausalLM"
    assert config.sliding_windows == (9, 9)


@pytest.mark.parametrize("arch", ["qwen2", "qwen3"])
def test_qwen_stays_itself_and_without_a_window(header, arch):
    file = header(arch, {f"{arch}.attention.sliding_window": 9})
    config = ModelConfig.from_hf(config_from_metadata(file))
    assert config.architecture == ARCHITECTURES[arch]
    assert config.qkv_bias is (arch == "qwen2")
    assert config.sliding_windows == (None, None)


@pytest.mark.parametrize("stated", [None, 77, 100])
def test_vocabulary_is_the_rows_of_the_embedding(header, stated):
    keys = None if stated is None else {"llama.vocab_size": stated}
    assert config_from_metadata(header(keys=keys))["vocab_size"] == 96


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ({}, {"rope_type": "default"}),
        ({"llama.rope.scaling.type": "none"}, {"rope_type": "default"}),
        (
            {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0},
            {"rope_type": "linear", "factor": 2.0},
        ),
        (
            {
                "llama.rope.scaling.type": "yarn",
                "llama.rope.scaling.factor": 4.0,
                "llama.rope.scaling.original_context_length": 32,
            },
            {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 32,
            },
        ),
        ({"llama.rope.scaling.factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
        ({"llama.rope.scale_linear": 4.0}, {"rope_type": "linear", "factor": 4.0}),
        (
            {"llama.rope.scale_linear": 4.0, "llama.rope.scaling.factor": 2.0},
            {"rope_type": "linear", "factor": 2.0},
        ),
        (
            {"llama.rope.scale_linear": 4.0, "llama.rope.scaling.type": "none"},
            {"rope_type": "default"},
        ),
        ({"llama.rope.scale_linear": 1.0}, {"rope_type": "default"}),
        ({"llama.rope.scaling.factor": 0.0}, {"rope_type": "default"}),
        ({"llama.rope.scaling.type": "linear"}, {"rope_type": "default"}),
    ],
)
def test_rope_scaling(header, keys, wanted):
    found = config_from_metadata(header(keys=keys))
    assert found["rope_parameters"] == {"rope_theta": 5e5, **wanted}
    ModelConfig.from_hf(found)


def test_llama3_factors_are_read_from_their_tensor(header):
    factors = np.linspace(1, 8, 8, dtype=np.float32)
    found = config_from_metadata(header(extra={"rope_freqs.weight": factors}))
    rope = ModelConfig.from_hf(found).rope
    assert rope.rope_type == "frequency_factors"
    np.testing.assert_array_equal(np.float32(rope.frequency_factors), factors)


@pytest.mark.parametrize(
    ("keys", "times"),
    [
        ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}, 4),
        ({"llama.rope.scale_linear": 2.0}, 2),
        ({"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 4.0}, 1),
        ({"llama.rope.scaling.type": "linear"}, 1),
    ],
)
def test_linear_scaling_joins_the_llama3_factors(header, keys, times):
    factors = np.linspace(1, 8, 8, dtype=np.float32)
    found = config_from_metadata(header(keys=keys, extra={ROPE_FACTORS: factors}))
    rope = ModelConfig.from_hf(found).rope
    assert rope.rope_type == "frequency_factors"
    np.testing.assert_array_equal(rope.frequency_factors, factors.astype(float) * times)


def test_other_scaling_beside_llama3_factors_is_refused(header):
    keys = {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0}
    file = header(keys=keys, extra={ROPE_FACTORS: np.ones(8, np.float32)})
    with pytest.raises(UnsupportedError, match=r"type is 'yarn' beside .*rope_freqs"):
        config_from_metadata(file)


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"llama.rope.dimension_count": 8}, "16 features of which 8 are rotated"),
        (
            {"llama.attention.value_length": 8, "llama.attention.key_length": 16},
            "with 8",
        ),
        ({"llama.expert_count": 8}, "'llama' with experts"),
        ({"split.count": 2, "split.no": 0}, r"gguf: one of the 2 files.*split --merge"),
    ],
)
def test_what_is_not_built_is_refused(header, keys, named):
    if "llama.rope.dimension_count" in keys:
        keys = {**keys, "llama.attention.key_length": 16}
    with pytest.raises(UnsupportedError, match=named):
        config_from_metadata(header(keys=keys))


def test_later_files_of_a_split_model_say_so(header):
    """They lack the architecture, which must not be what is complained of."""
    whole = header()
    later = GgufHeader(whole.path, whole.size, {"split.count": 2}, whole.tensors)
    with pytest.raises(UnsupportedError, match="one of the 2 files"):
        config_from_metadata(later)


def test_one_file_may_say_that_it_is_one(header):
    assert config_from_metadata(header(keys={"split.count": 1}))["vocab_size"] == 96


@pytest.mark.parametrize("value", [[4, 2], 0, "4"])
@pytest.mark.parametrize("key", ["head_count", "head_count_kv"])
def test_other_than_one_number_for_all_layers_is_refused(header, key, value):
    keys = {f"llama.attention.{key}": value}
    with pytest.raises(CheckpointError, match=rf"\.gguf: llama\.attention\.{key} is "):
        config_from_metadata(header(keys=keys))


def test_unknown_architecture_lists_the_known(header):
    with pytest.raises(
        UnsupportedError, match=r"'gemma2'.*llama, mistral, qwen2, qwen3"
    ):
        config_from_metadata(header("gemma2"))


def test_missing_key_is_named(header):
    whole = header()
    metadata = {k: v for k, v in whole.metadata.items() if "head_count" not in k}
    cut = GgufHeader(whole.path, whole.size, metadata, whole.tensors)
    with pytest.raises(CheckpointError, match=r"lacks llama\.attention\.head_count"):
        config_from_metadata(cut)


def test_table_agrees_with_that_of_transformers():
    """Where both have a word; theirs is not public, so it may move away."""
    ggml = pytest.importorskip("transformers.integrations.ggml")
    from jengine.checkpoint import gguf_config

    for arch in ARCHITECTURES:
        theirs = ggml.GGUF_CONFIG_MAPPING[arch]
        for key, name in gguf_config._KEYS.items():
            assert theirs[key] == name
