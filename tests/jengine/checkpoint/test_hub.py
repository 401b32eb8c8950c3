import huggingface_hub
import pytest
from huggingface_hub import constants

from jengine.checkpoint import open_checkpoint
from jengine.checkpoint.hub import download
from jengine.errors import CheckpointError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and no network (HF_HUB_OFFLINE is set for all tests)."""
    folder = tmp_path / "hub"
    folder.mkdir()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    return folder


def test_cached_copy_is_used_offline(cache, sharded):
    repository = cache / "models--owner--some-model"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    for file in sharded.iterdir():
        (snapshot / file.name).symlink_to(file)
    assert download("owner/some-model", None) == snapshot
    checkpoint = open_checkpoint("owner/some-model")
    assert checkpoint.path == str(snapshot)
    assert checkpoint.tensors.read("model.norm.weight").shape == (64,)


@pytest.mark.parametrize("revision", [None, "v2"])
def test_nothing_cached_names_what_was_tried(cache, revision):
    with pytest.raises(
        CheckpointError, match=r"owner/none: no such file.*looked in"
    ) as e:
        download("owner/none", revision)
    assert ("at revision v2" in str(e.value)) == (revision == "v2")
    assert "path of a local folder" in str(e.value)


def test_no_pickle_is_ever_asked_for(monkeypatch):
    from fnmatch import fnmatch

    asked = {}

    def snapshot_download(name, **options):
        asked.update(options, name=name)
        return "/somewhere"

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    download("owner/m", "v1")
    assert (asked["name"], asked["revision"]) == ("owner/m", "v1")

    def wanted(file):
        allowed = any(fnmatch(file, p) for p in asked["allow_patterns"])
        return allowed and not any(fnmatch(file, p) for p in asked["ignore_patterns"])

    yes = (
        "model.safetensors",
        "model-00001-of-00002.safetensors",
        "model.safetensors.index.json",
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer.model",
        "merges.txt",
        "chat_template.jinja",
    )
    no = (
        "pytorch_model.bin",
        "consolidated.00.pth",
        "consolidated.safetensors",
        "original/consolidated.safetensors",
        "model.gguf",
        "modeling_custom.py",
    )
    assert [file for file in yes if not wanted(file)] == []
    assert [file for file in no if wanted(file)] == []


def test_one_file_alone(monkeypatch):
    asked = {}

    def snapshot_download(name, **options):
        asked.update(options)
        return "/somewhere"

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    download("owner/m", None, only=("config.json",))
    assert asked["allow_patterns"] == ["config.json"]
