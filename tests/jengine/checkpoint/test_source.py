import json

import numpy as np
import pytest

from jengine.checkpoint import load_parameters, open_checkpoint
from jengine.errors import CheckpointError

HEAD, EMBED = "lm_head.weight", "model.embed_tokens.weight"


@pytest.fixture
def loads(make_targets):
    """Open and load, as a runner would."""

    def load(path):
        checkpoint = open_checkpoint(path)
        targets = make_targets(checkpoint.config)
        return checkpoint, load_parameters(checkpoint, targets, "float32")

    return load


def test_ckp_02_shards_and_one_file_hold_the_same(
    sharded, loads, write_folder, make_config, make_tensors
):
    single = write_folder(make_config(), make_tensors(make_config()), folder="single")
    _, from_shards = loads(sharded)
    _, from_single = loads(single)
    assert from_shards.keys() == from_single.keys()
    for path, values in from_shards.items():
        np.testing.assert_array_equal(values, from_single[path])


def test_ckp_02_shards_without_an_index_load(sharded, loads):
    _, indexed = loads(sharded)
    (sharded / "model.safetensors.index.json").unlink()
    _, found = loads(sharded)
    for path, values in indexed.items():
        np.testing.assert_array_equal(found[path], values)


def test_what_an_open_folder_offers(write_folder, make_config, make_tensors):
    config, generation = make_config(), {"eos_token_id": [2, 7]}
    folder = write_folder(config, make_tensors(config), generation=generation)
    checkpoint = open_checkpoint(folder)
    assert checkpoint.config == config
    assert checkpoint.generation_config == generation
    assert checkpoint.path == checkpoint.tokenizer_path == str(folder)
    assert checkpoint.gguf_file is None
    assert open_checkpoint(str(folder)).config == config


def test_no_generation_config_is_empty(sharded):
    assert open_checkpoint(sharded).generation_config == {}


@pytest.mark.parametrize("has_weights", [True, False])
def test_without_weights_none_are_looked_at(
    write_folder, make_config, make_tensors, has_weights
):
    config = make_config(tie_word_embeddings=True)
    folder = write_folder(config, make_tensors(config), generation={"top_k": 3})
    (folder / "model.safetensors").write_bytes(b"")  # as an unfinished download
    if not has_weights:
        (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError):
        open_checkpoint(folder)
    checkpoint = open_checkpoint(folder, with_weights=False)
    assert (checkpoint.config, checkpoint.generation_config) == (config, {"top_k": 3})
    assert checkpoint.tokenizer_path == str(folder)


def test_broken_generation_config_is_named(sharded):
    (sharded / "generation_config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"generation_config\.json"):
        open_checkpoint(sharded)


def test_ckp_01_tied_without_a_head(write_folder, make_config, make_tensors, loads):
    config = make_config(tie_word_embeddings=True)
    _, parameters = loads(write_folder(config, make_tensors(config)))
    assert ("lm_head", "weight") not in parameters


def test_ckp_01_untied_with_a_head(sharded, loads, make_config, make_tensors):
    _, parameters = loads(sharded)
    wanted = make_tensors(make_config())
    np.testing.assert_array_equal(parameters["lm_head", "weight"], wanted[HEAD])
    np.testing.assert_array_equal(parameters["embed", "weight"], wanted[EMBED])


def test_ckp_01_untied_without_a_head(write_folder, make_config, make_tensors, loads):
    tensors = make_tensors(make_config())
    del tensors[HEAD]
    with pytest.raises(CheckpointError, match=r"lm_head\.weight is missing"):
        loads(write_folder(make_config(), tensors))


def test_ckp_01_tied_with_an_equal_head(write_folder, make_config, make_tensors, loads):
    config = make_config(tie_word_embeddings=True)
    tensors = make_tensors(config)
    tensors[EMBED][3, 4] = np.nan
    tensors[HEAD] = tensors[EMBED].copy()
    checkpoint, parameters = loads(write_folder(config, tensors))
    assert checkpoint.config["tie_word_embeddings"] is True
    assert ("lm_head", "weight") not in parameters


def test_ckp_01_tied_with_another_head_uses_the_files(
    write_folder, make_config, make_tensors, loads
):
    config = make_config(tie_word_embeddings=True)
    tensors = make_tensors(config)
    tensors[HEAD] = tensors[EMBED] + 1
    checkpoint, parameters = loads(write_folder(config, tensors))
    assert checkpoint.config["tie_word_embeddings"] is False
    np.testing.assert_array_equal(parameters["lm_head", "weight"], tensors[HEAD])


def test_ckp_02_inv_freq_is_ignored(write_folder, make_config, make_tensors, loads):
    tensors = make_tensors(make_config())
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(8, np.float32)
    _, parameters = loads(write_folder(make_config(), tensors))
    assert len(parameters) > 0


def test_ckp_02_unknown_tensor_is_named(write_folder, make_config, make_tensors, loads):
    """A bias that the config does not speak of must not be dropped."""
    tensors = make_tensors(make_config(attention_bias=True))
    with pytest.raises(CheckpointError, match=r"self_attn\.\w_proj\.bias.* unknown"):
        loads(write_folder(make_config(), tensors))


def test_ckp_03_shape_against_config(write_folder, make_config, make_tensors, loads):
    folder = write_folder(
        make_config(intermediate_size=80), make_tensors(make_config())
    )
    with pytest.raises(
        CheckpointError, match=r"model\.safetensors.*down_proj.*\[64, 96\].*\[64, 80"
    ):
        loads(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.pth"])
def test_ckp_02_pickles_are_refused(tmp_path, make_config, name):
    (tmp_path / "config.json").write_text(json.dumps(make_config()))
    (tmp_path / name).write_bytes(b"never opened")
    with pytest.raises(CheckpointError, match=rf"pickled \({name}\).*save_pretrained"):
        open_checkpoint(tmp_path)


def test_ckp_03_no_weights(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "consolidated.safetensors").write_bytes(b"")
    with pytest.raises(
        CheckpointError, match=r"folder holds config\.json, consol|holds"
    ):
        open_checkpoint(tmp_path)


def test_a_config_can_be_refused_before_weights_are_looked_for(tmp_path):
    (tmp_path / "config.json").write_text('{"a": 1}')

    def refuse(path, config):
        raise LookupError(f"{path} {config}")

    with pytest.raises(LookupError, match=rf"^{tmp_path} \{{'a': 1\}}$"):
        open_checkpoint(tmp_path, check_config=refuse)


def test_ckp_03_no_config(tmp_path):
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    with pytest.raises(
        CheckpointError, match=r"config\.json is missing.*give its path"
    ):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["/no/such/folder", "./missing", "a/b/c", "x y", ""])
def test_no_path_and_no_hub_name(name, monkeypatch):
    monkeypatch.setattr("jengine.checkpoint.source.download", None)  # must not be tried
    with pytest.raises(CheckpointError, match="no such file or folder, nor can it be"):
        open_checkpoint(name)


def test_hub_name_goes_to_the_hub(sharded, monkeypatch):
    asked = []

    def download(name, revision, only):
        asked.append((name, revision, "*.safetensors" in only))
        return sharded

    monkeypatch.setattr("jengine.checkpoint.source.download", download)
    checkpoint = open_checkpoint("owner/some-model", revision="v2")
    assert checkpoint.path == str(sharded)
    open_checkpoint("owner/some-model", with_weights=False)
    assert asked == [
        ("owner/some-model", "v2", True),
        ("owner/some-model", None, False),
    ]


def test_no_weights_are_downloaded_of_a_model_that_cannot_be_run(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text('{"a": 1}')
    asked = []

    def download(name, revision, only):
        asked.append(only)
        return tmp_path

    def refuse(path, config):
        raise LookupError(f"{config}")

    monkeypatch.setattr("jengine.checkpoint.source.download", download)
    with pytest.raises(LookupError, match="'a': 1"):
        open_checkpoint("owner/some-model", check_config=refuse)
    assert asked == [("config.json",)]


def test_a_file_must_be_gguf(sharded):
    with pytest.raises(CheckpointError, match=r"must be a \.gguf file.*the folder"):
        open_checkpoint(sharded / "config.json")


def test_what_an_open_gguf_offers(write_gguf, make_config, make_tensors):
    path = write_gguf("llama", make_config(), make_tensors(make_config()))
    checkpoint = open_checkpoint(path)
    assert checkpoint.path == str(path)
    assert (checkpoint.tokenizer_path, checkpoint.gguf_file) == (
        str(path.parent),
        path.name,
    )
    assert checkpoint.generation_config == {"bos_token_id": 1, "eos_token_id": 2}
    assert checkpoint.config["architectures"] == ["LlamaForCausalLM"]


@pytest.mark.parametrize("content", [b"", b"version https://git-lfs.github.com/spec"])
def test_ckp_03_gguf_that_was_not_downloaded(tmp_path, content):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"model\.gguf"):
        open_checkpoint(path)
