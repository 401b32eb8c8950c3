import json

import huggingface_hub
import pytest

from jengine.aot.model_config import find_model_config
from jengine.errors import CheckpointError


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text('{"hidden_size": 7}')
    return tmp_path


def test_a_folder_needs_nothing_but_its_config(folder):
    assert find_model_config(str(folder)) == {"hidden_size": 7}


def test_the_file_itself_will_do(folder):
    moved = (folder / "config.json").rename(folder / "another-name.json")
    assert find_model_config(str(moved)) == {"hidden_size": 7}


def test_a_checkpoint_is_a_folder_like_any_other(f2_dir):
    config = find_model_config(str(f2_dir))
    assert config == json.loads((f2_dir / "config.json").read_text())


@pytest.mark.checkpoint
def test_a_gguf_file_tells_its_config(smollm2_gguf):
    config = find_model_config(str(smollm2_gguf))
    assert config["hidden_size"] == 576
    assert config["architectures"] == ["LlamaForCausalLM"]


def test_a_folder_without_a_config_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"config\.json is missing"):
        find_model_config(str(tmp_path))


def test_a_file_that_is_no_json_is_refused(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    with pytest.raises(CheckpointError, match="cannot be read as JSON"):
        find_model_config(str(path))


def test_a_name_is_looked_up_on_the_hub_for_this_file_only(folder, monkeypatch):
    asked = []

    def download(*names, revision):
        asked.append((*names, revision))
        return str(folder / "config.json")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    assert find_model_config("owner/model", "main") == {"hidden_size": 7}
    assert asked == [("owner/model", "config.json", "main")]


def test_a_name_that_nobody_knows_is_refused():
    with pytest.raises(CheckpointError, match="no such file or folder"):
        find_model_config("owner/model-that-nobody-has")
