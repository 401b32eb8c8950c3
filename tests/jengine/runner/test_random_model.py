import jax
import numpy as np
import pytest

from jengine.runner.random_model import place_model, random_model
from models.config import ModelConfigError

CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "vocab_size": 640,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
}
CPU = jax.local_devices(backend="cpu")[0]


def leaves(model):
    paths = jax.tree_util.tree_leaves_with_path(model.params)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in paths}


def test_weights_are_spread_as_asked_and_norms_keep_their_input():
    model = random_model(CONFIG, dtype="float32", device=CPU, std=0.05)
    assert model.config.num_layers == 2
    found = leaves(model)
    head = found["['lm_head']['weight']"]
    assert head.shape == (640, 64)
    np.testing.assert_allclose(head.std(), 0.05, rtol=0.02)
    np.testing.assert_allclose(head.mean(), 0.0, atol=0.001)
    assert (found["['norm']['scale']"] == 1).all()
    assert (found["['layers'][0]['attention']['qkv']['bias']"] == 0).all()


def test_no_two_weights_are_alike_and_a_seed_gives_them_again():
    found, again, other = (
        leaves(random_model(CONFIG, dtype="bfloat16", device=CPU, seed=seed))
        for seed in (1, 1, 2)
    )
    name = "['layers'][{}]['mlp']['down']['weight']"
    first, second = found[name.format(0)], found[name.format(1)]
    assert first.dtype == "bfloat16"
    assert (first != second).mean() > 0.9
    np.testing.assert_array_equal(first, again[name.format(0)])
    assert (first != other[name.format(0)]).mean() > 0.9


def test_a_copy_has_the_same_numbers_and_is_committed_to_its_device():
    model = random_model(CONFIG, dtype="float32", device=CPU)
    copy = place_model(model, CPU)
    for name, leaf in leaves(copy).items():
        np.testing.assert_array_equal(leaf, leaves(model)[name])
    assert all(leaf.committed for leaf in jax.tree.leaves(copy.params))
    assert all(leaf.devices() == {CPU} for leaf in jax.tree.leaves(copy.params))


def test_a_config_without_sizes_is_refused():
    with pytest.raises(ModelConfigError, match="vocab_size"):
        random_model(
            {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1},
            dtype="float32",
            device=CPU,
        )
