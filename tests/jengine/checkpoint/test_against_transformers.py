"""Files that transformers writes or reads, tensor by tensor against its own."""

import functools
import json
import warnings

import gguf
import numpy as np
import pytest

from jengine.checkpoint import load_parameters, open_checkpoint

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


def state_of(model) -> dict[str, np.ndarray]:
    return {
        name: value.detach().float().numpy()
        for name, value in model.state_dict().items()
    }


def assert_loads(checkpoint, targets, state, dtype="float32"):
    found = load_parameters(checkpoint, targets, dtype)
    for path, target in targets.items():
        wanted = np.concatenate([state[name] for name in target.names])
        np.testing.assert_array_equal(
            found[path].astype(np.float32), wanted, err_msg=str(path)
        )


def random_model(config, dtype=None):
    name = config["architectures"][0].removesuffix("ForCausalLM")
    parsed = getattr(transformers, f"{name}Config").from_dict(dict(config))
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(parsed)
    with torch.no_grad():
        for value in model.parameters():
            value.copy_(0.4 * torch.randn(value.shape))
    return model.to(dtype) if dtype else model


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("Llama", {"attention_bias": True, "mlp_bias": True}),
        ("Llama", {"tie_word_embeddings": True}),
        ("Mistral", {"head_dim": 32}),
        ("Qwen2", {}),
        ("Qwen3", {"head_dim": 32}),
    ],
)
def test_ckp_02_shards_that_transformers_wrote(
    name, keys, make_config, make_targets, tmp_path
):
    model = random_model(make_config(architectures=[f"{name}ForCausalLM"], **keys))
    model.save_pretrained(tmp_path, max_shard_size="60KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) >= 3
    checkpoint = open_checkpoint(tmp_path)
    assert_loads(checkpoint, make_targets(checkpoint.config), state_of(model))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_ckp_07_formats_that_transformers_wrote(
    dtype, make_config, make_targets, tmp_path
):
    model = random_model(make_config(), getattr(torch, dtype))
    model.save_pretrained(tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.dtype == dtype
    for wanted in ("float32", dtype):
        assert_loads(
            checkpoint, make_targets(checkpoint.config), state_of(model), wanted
        )


def test_ckp_01_transformers_also_uses_another_head(
    make_config, make_targets, tmp_path
):
    """The choice for a tied config whose files hold another head is theirs."""
    from safetensors.numpy import load_file, save_file

    random_model(make_config(tie_word_embeddings=True)).save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + 1
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    assert_loads(checkpoint, make_targets(checkpoint.config), state_of(theirs))


def from_gguf(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch and gguf on read-only arrays
        return transformers.AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=torch.float32
        )


@pytest.mark.parametrize(("arch", "kind"), [("llama", "Q8_0"), ("qwen2", "F16")])
def test_ckp_06_transformers_reads_the_same_from_our_files(
    arch, kind, write_gguf, make_config, make_tensors, make_targets
):
    """Shows that the fixture writes what a converter writes."""
    name = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}[arch]
    config = make_config(architectures=[name])
    path = write_gguf(arch, config, make_tensors(config), kind)
    theirs = from_gguf(path)
    checkpoint = open_checkpoint(path)
    assert_loads(checkpoint, make_targets(checkpoint.config), state_of(theirs))
    rope = theirs.config.rope_parameters
    assert checkpoint.config["rope_parameters"]["rope_theta"] == rope["rope_theta"]


@pytest.mark.checkpoint
@pytest.mark.slow
def test_ckp_06_real_checkpoint_equals_transformers(
    smollm2_gguf, make_targets, monkeypatch
):
    # transformers opens the file twice, which takes seconds each time.
    monkeypatch.setattr(gguf, "GGUFReader", functools.cache(gguf.GGUFReader))
    theirs = from_gguf(smollm2_gguf)
    checkpoint = open_checkpoint(smollm2_gguf)
    assert_loads(checkpoint, make_targets(checkpoint.config), state_of(theirs))
    config = json.loads(theirs.config.to_json_string(use_diff=False))
    for key in ("bos_token_id", "eos_token_id", "rms_norm_eps", "rope_parameters"):
        assert checkpoint.config[key] == config[key]
