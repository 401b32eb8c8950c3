"""Parameters in place, value for value, by architecture and number format."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jengine.checkpoint import open_checkpoint
from jengine.errors import CheckpointError
from jengine.runner.load import load_model
from jengine.testing import write_random_checkpoint
from models.config import ModelConfig


def load(folder, dtype="float32"):
    checkpoint = open_checkpoint(folder)
    config = ModelConfig.from_hf(dict(checkpoint.config))
    return load_model(checkpoint, config, dtype, jax.local_devices()[0])


def test_every_tensor_is_in_its_place(f2_dir):
    model = load(f2_dir)
    tensors = load_file(f2_dir / "model.safetensors")
    layer = model.params["layers"][1]
    prefix = "model.layers.1."

    def joined(*names):
        return np.concatenate([tensors[f"{prefix}{n}.weight"] for n in names])

    pairs = {
        "embed": (
            model.params["embed"]["weight"],
            tensors["model.embed_tokens.weight"],
        ),
        "head": (model.params["lm_head"]["weight"], tensors["lm_head.weight"]),
        "norm": (model.params["norm"]["scale"], tensors["model.norm.weight"]),
        "qkv": (
            layer["attention"]["qkv"]["weight"],
            joined("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        ),
        "o": (layer["attention"]["o"]["weight"], joined("self_attn.o_proj")),
        "gate_up": (
            layer["mlp"]["gate_up"]["weight"],
            joined("mlp.gate_proj", "mlp.up_proj"),
        ),
        "down": (layer["mlp"]["down"]["weight"], joined("mlp.down_proj")),
        "input_norm": (layer["input_norm"]["scale"], joined("input_layernorm")),
        "post_norm": (layer["post_norm"]["scale"], joined("post_attention_layernorm")),
    }
    for name, (placed, want) in pairs.items():
        np.testing.assert_array_equal(np.asarray(placed), want, err_msg=name)
    # Nothing is left unset: as many numbers as the file holds, none of them shared.
    leaves = jax.tree.leaves(model.params)
    assert sum(leaf.size for leaf in leaves) == sum(t.size for t in tensors.values())
    assert {leaf.device for leaf in leaves} == {jax.local_devices()[0]}
    assert all(isinstance(leaf, jax.Array) for leaf in leaves)


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [("bfloat16", ml_dtypes.bfloat16), ("float16", np.float16)],
)
def test_numbers_are_rounded_to_the_format(f2_dir, dtype, kind):
    placed = load(f2_dir, dtype).params["norm"]["scale"]
    tensor = load_file(f2_dir / "model.safetensors")["model.norm.weight"]
    assert placed.dtype == jnp.dtype(dtype)
    np.testing.assert_array_equal(np.asarray(placed), tensor.astype(kind))


@pytest.mark.parametrize(
    ("architecture", "options", "extra"),
    [
        ("LlamaForCausalLM", {"tie": True}, set()),
        ("Qwen2ForCausalLM", {}, {"qkv.bias"}),
        ("Qwen3ForCausalLM", {}, {"q_norm.scale", "k_norm.scale"}),
        ("LlamaForCausalLM", {"attention_bias": True}, {"qkv.bias", "o.bias"}),
    ],
)
def test_parameters_that_only_some_models_have(tmp_path, architecture, options, extra):
    write_random_checkpoint(tmp_path, architecture, **options)
    model = load(tmp_path)
    assert ("lm_head" in model.params) is not options.get("tie", False)
    attention = model.params["layers"][0]["attention"]
    found = {f"{part}.{name}" for part, names in attention.items() for name in names}
    assert found == {"qkv.weight", "o.weight"} | extra
    assert model.config.architecture == architecture


def test_equal_models_have_equal_structures(f2_dir):
    # Programs are traced with the structure as a static argument.
    assert load(f2_dir).graphdef == load(f2_dir).graphdef


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("model.norm.weight"), "model.norm.weight"),
        (lambda t: t.update(other=t["model.norm.weight"]), "other"),
        (
            lambda t: t.update({"lm_head.weight": np.zeros((319, 64), np.float32)}),
            "lm_head.weight",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_named(tmp_path, change, message):
    write_random_checkpoint(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path)
