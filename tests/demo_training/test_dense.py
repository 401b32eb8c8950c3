"""The dense forward pass of training, against transformers on the exported files."""

import numpy as np
import pytest

pytest.importorskip("demo_training.dense", reason="the scripts are in a checkout only")

import jax
import jax.numpy as jnp
from flax import nnx

from demo_training.dense import initialise
from demo_training.dense import logits as eager_logits
from demo_training.export import export
from demo_training.train import CONFIG, GENERATION_CONFIG
from models.config import ModelConfig
from models.llama import Llama

SMALL = CONFIG | {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "head_dim": 8,
}
logits = nnx.jit(eager_logits)
IDS = np.random.default_rng(3).integers(0, 300, (2, 17), np.int32)


@pytest.fixture(scope="module")
def model():
    model = Llama(ModelConfig.from_hf(SMALL), dtype=jnp.dtype("float32"))
    initialise(model, 5)
    # In the format of the file, and large enough that every weight counts.
    for _, leaf in nnx.to_flat_state(nnx.state(model, nnx.Param)):
        scale = 10.0 if leaf[...].ndim == 2 else 1.0
        leaf[...] = (leaf[...] * scale).astype(jnp.bfloat16).astype(jnp.float32)
    return model


def test_exported_model_gives_the_same_logits_in_transformers(model, tmp_path):
    torch = pytest.importorskip("torch")
    from transformers import LlamaForCausalLM

    export(model, SMALL, GENERATION_CONFIG, tmp_path)
    reference = LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    with torch.no_grad():
        wanted = reference(torch.tensor(IDS, dtype=torch.int64)).logits.numpy()
    assert np.abs(wanted).max() > 1
    np.testing.assert_allclose(logits(model, IDS), wanted, rtol=1e-4, atol=1e-4)


def test_rows_see_themselves_only(model):
    found = logits(model, np.stack([IDS[0], IDS[0]]))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-5)
    changed = IDS.copy()
    changed[1, 9] += 1
    before, after = logits(model, IDS), logits(model, changed)
    different = jnp.any(jnp.abs(before - after) > 1e-4, axis=-1)
    assert not different[0].any()
    assert not different[1, :9].any()
    assert different[1, 9:].all()


def test_initial_values_depend_on_the_seed_only():
    def values(seed):
        model = Llama(ModelConfig.from_hf(SMALL), dtype=jnp.dtype("float32"))
        initialise(model, seed)
        return jax.tree.leaves(nnx.state(model, nnx.Param))

    pairs = list(zip(values(1), values(1), values(2), strict=True))
    assert all((a == b).all() for a, b, _ in pairs)
    assert any((a != c).any() for a, _, c in pairs)
