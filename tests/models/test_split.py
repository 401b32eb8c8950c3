import dataclasses

import pytest

from models import llama
from models.config import ModelConfig, UnsupportedModelError
from models.registry import abstract_parameters
from models.split import ParameterSplit, local_config, parameter_split


@pytest.fixture
def config(small_config):
    return ModelConfig.from_hf(
        small_config(
            num_attention_heads=8,
            num_key_value_heads=4,
            attention_bias=True,
            mlp_bias=True,
            tie_word_embeddings=False,
        )
    )


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_every_split_parameter_has_its_share_of_the_local_model(config, shards):
    _, whole = abstract_parameters(config, "float32")
    _, local = abstract_parameters(local_config(config, shards), "float32")
    assert whole.keys() == local.keys()
    num_split = 0
    for path, shape in whole.items():
        expected = list(shape.shape)
        split = parameter_split(config, path)
        if split is not None:
            num_split += 1
            assert sum(split.parts) == expected[split.axis]
            assert all(part % shards == 0 for part in split.parts)
            expected[split.axis] //= shards
        assert list(local[path].shape) == expected, path
    # Embedding, head, and in each layer four weights and two of the four biases.
    assert num_split == 2 + 6 * config.num_layers


def test_joined_projections_are_cut_part_by_part(config):
    assert set(llama.parameter_sources(config)) == set(
        abstract_parameters(config, "float32")[1]
    )
    path = ("layers", 0, "attention", "qkv", "weight")
    queries, keys = 8 * config.head_dim, 4 * config.head_dim
    assert parameter_split(config, path) == ParameterSplit(0, (queries, keys, keys))


@pytest.mark.parametrize(
    ("shards", "field"), [(3, "num_heads"), (8, "num_kv_heads"), (5, "vocab_size")]
)
def test_sizes_that_do_not_divide_are_named(config, shards, field):
    size = getattr(config, field)
    with pytest.raises(UnsupportedModelError, match=rf"{field} = {size}"):
        local_config(config, shards)


def test_what_is_not_split_stays(config):
    local = local_config(config, 2)
    changed = {
        field.name
        for field in dataclasses.fields(config)
        if getattr(local, field.name) != getattr(config, field.name)
    }
    assert changed == {"num_heads", "num_kv_heads", "intermediate_size", "vocab_size"}
