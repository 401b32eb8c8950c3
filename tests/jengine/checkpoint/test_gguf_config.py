import numpy as np
import pytest

from jengine.checkpoint.gguf_config import (
    ARCHITECTURES,
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


def test_window_makes_it_a_mistral(header):
    found = config_from_metadata(header(keys={"llama.attention.sliding_window": 9}))
    config = ModelConfig.from_hf(found)
    assert config.architecture == "MistralForCausalLM"
    assert config.sliding_windows == (9, 9)


def test_vocabulary_is_the_key_or_the_rows_of_the_embedding(header):
    assert config_from_metadata(header())["vocab_size"] == 96
    keyed = header(keys={"llama.vocab_size": 77})
    assert config_from_metadata(keyed)["vocab_size"] == 77


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
    ("keys", "named"),
    [
        ({"llama.rope.dimension_count": 8}, "16 features of which 8 are rotated"),
        (
            {"llama.attention.value_length": 8, "llama.attention.key_length": 16},
            "with 8",
        ),
        ({"llama.expert_count": 8}, "'llama' with experts"),
    ],
)
def test_what_is_not_built_is_refused(header, keys, named):
    if "llama.rope.dimension_count" in keys:
        keys = {**keys, "llama.attention.key_length": 16}
    with pytest.raises(UnsupportedError, match=named):
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
