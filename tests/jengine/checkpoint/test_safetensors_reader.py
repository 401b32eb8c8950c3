import json
import struct

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from jengine.checkpoint.safetensors_reader import (
    SafetensorsReader,
    check_downloaded,
    has_weights,
    read_json,
)
from jengine.errors import CheckpointError

INDEX = "model.safetensors.index.json"
SHARD = "model-00002-of-00003.safetensors"


def write_raw(path, tensors: dict[str, tuple[str, list[int], bytes]]):
    """A safetensors file by hand: 8 bytes of header size, JSON, then the data."""
    header, data = {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        end = len(data) + len(raw)
        header[name] = {
            "dtype": dtype,
            "shape": shape,
            "data_offsets": [len(data), end],
        }
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_ckp_07_every_format_comes_back_bit_by_bit(tmp_path, dtype):
    bits = np.random.default_rng(0).integers(0, 256, (4, 3, 8), np.uint8)
    wanted = bits.view(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    code = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64"}
    raw = (code[dtype], list(wanted.shape), wanted.tobytes())
    write_raw(tmp_path / "model.safetensors", {"a": raw})
    reader = SafetensorsReader(tmp_path)
    assert list(reader.names()) == ["a"]
    assert reader.shape("a") == wanted.shape
    assert reader.dtype("a") == wanted.dtype == reader.read("a").dtype
    assert reader.read("a").tobytes() == wanted.tobytes()
    assert reader.location("a") == str(tmp_path / "model.safetensors")


@pytest.mark.parametrize("code", ["F8_E4M3", "I8", "I64"])
def test_ckp_07_other_formats_are_named(tmp_path, code):
    write_raw(tmp_path / "model.safetensors", {"a": (code, [2], bytes(16))})
    if code != "I64":
        write_raw(tmp_path / "model.safetensors", {"a": (code, [2], bytes(2))})
    with pytest.raises(CheckpointError, match=rf"tensor a is stored as {code}"):
        SafetensorsReader(tmp_path).read("a")


def test_ckp_02_the_index_decides(sharded):
    save_file({"model.norm.weight": np.zeros(1)}, sharded / "model.safetensors")
    save_file({"x": np.zeros(1)}, sharded / "consolidated.safetensors")
    (sharded / "training_args.bin").write_bytes(b"pickle")
    reader = SafetensorsReader(sharded)
    assert "x" not in set(reader.names())
    assert reader.shape("model.norm.weight") == (64,)
    assert reader.location("lm_head.weight").endswith(".safetensors")


def change_index(folder, change):
    index = json.loads((folder / INDEX).read_text())
    change(index["weight_map"])
    (folder / INDEX).write_text(json.dumps(index))


def test_ckp_02_wrong_shard_is_named(sharded):
    name = "model.norm.weight"
    change_index(sharded, lambda m: m.update({name: m["model.embed_tokens.weight"]}))
    files = {json.loads((sharded / INDEX).read_text())["weight_map"][name]}
    held = SafetensorsReader  # opening is what must fail
    with pytest.raises(CheckpointError, match=rf"{files.pop()}: tensor {name}"):
        held(sharded)


@pytest.fixture
def whole(make_tensors, make_config):
    return make_tensors(make_config())


def assert_reads(reader, tensors):
    assert set(reader.names()) == set(tensors)
    for name, values in tensors.items():
        np.testing.assert_array_equal(reader.read(name), values)


def test_ckp_02_shards_without_an_index(sharded, whole):
    (sharded / INDEX).unlink()
    save_file({"x": np.zeros(1)}, sharded / "consolidated.safetensors")
    assert has_weights(sharded)
    assert_reads(SafetensorsReader(sharded), whole)


def test_ckp_02_one_shard_under_another_name(tmp_path, whole):
    save_file(whole, tmp_path / "model-00001-of-00001.safetensors")
    assert has_weights(tmp_path)
    assert_reads(SafetensorsReader(tmp_path), whole)


def test_ckp_02_copies_beside_the_whole_file_are_left_alone(tmp_path, whole):
    save_file(whole, tmp_path / "model.safetensors")
    save_file({"x": np.zeros(1)}, tmp_path / "model.fp16.safetensors")
    assert_reads(SafetensorsReader(tmp_path), whole)


def test_ckp_02_a_tensor_in_two_files_names_both(tmp_path):
    for i in (1, 2):
        save_file({"a": np.zeros(i)}, tmp_path / f"model-0000{i}-of-00002.safetensors")
    with pytest.raises(
        CheckpointError, match=r"model-00002-.*tensor a is also in model-00001-"
    ):
        SafetensorsReader(tmp_path)


def test_ckp_02_an_index_without_its_files_is_left_for_the_whole_file(
    sharded, whole, caplog
):
    for shard in sharded.glob("model-*.safetensors"):
        shard.unlink()
    save_file(whole, sharded / "model.safetensors")
    assert_reads(SafetensorsReader(sharded), whole)
    assert f"{INDEX}: none of the files" in caplog.text


def test_ckp_03_a_part_of_the_index_is_not_left_for_the_whole_file(sharded, whole):
    save_file(whole, sharded / "model.safetensors")
    (sharded / SHARD).unlink()
    with pytest.raises(CheckpointError, match=rf"{SHARD}: the file is missing"):
        SafetensorsReader(sharded)


def test_other_names_hold_no_weights(tmp_path):
    save_file({"x": np.zeros(1)}, tmp_path / "consolidated.safetensors")
    assert not has_weights(tmp_path)
    with pytest.raises(CheckpointError, match=r"/model\.safetensors: .* missing"):
        SafetensorsReader(tmp_path)


@pytest.mark.parametrize("size", ["less one", "half", "four", "none"])
def test_ckp_03_cut_shard_is_named(sharded, size):
    whole = (sharded / SHARD).read_bytes()
    keep = {"less one": -1, "half": len(whole) // 2, "four": 4, "none": 0}[size]
    (sharded / SHARD).write_bytes(whole[:keep])
    with pytest.raises(CheckpointError, match=SHARD):
        SafetensorsReader(sharded)


def test_ckp_03_missing_shard_is_named(sharded):
    (sharded / SHARD).unlink()
    with pytest.raises(CheckpointError, match=rf"{SHARD}: the file is missing"):
        SafetensorsReader(sharded)


def test_ckp_03_lfs_pointer_is_explained(sharded):
    (sharded / SHARD).write_text("version https://git-lfs.github.com/spec/v1\noid x\n")
    with pytest.raises(CheckpointError, match=rf"{SHARD}: a Git LFS pointer.*lfs pull"):
        SafetensorsReader(sharded)


def test_ckp_03_wrong_offsets_are_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    write_raw(path, {"a": ("F32", [3], bytes(8))})  # 3 floats need 12 bytes
    with pytest.raises(CheckpointError, match="not a whole safetensors file"):
        SafetensorsReader(tmp_path)


@pytest.mark.parametrize("file", ["../evil.safetensors", "/etc/evil.safetensors", 3])
def test_index_cannot_lead_out_of_the_folder(sharded, file):
    change_index(sharded, lambda m: m.update({"model.norm.weight": file}))
    with pytest.raises(CheckpointError, match="inside the checkpoint's folder"):
        SafetensorsReader(sharded)


@pytest.mark.parametrize("index", ["{}", '{"weight_map": {}}', '{"weight_map": [1]}'])
def test_index_without_a_map(sharded, index):
    (sharded / INDEX).write_text(index)
    with pytest.raises(CheckpointError, match="weight_map"):
        SafetensorsReader(sharded)


@pytest.mark.parametrize("text", ["", "{", "[1]", "\x00", "[" * 100_000])
def test_bad_json_names_its_file(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        read_json(path)


def test_json_object_comes_back(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"name": "中"}', encoding="utf-8")
    assert read_json(path) == {"name": "中"}


def test_a_whole_file_passes_the_download_check(tmp_path):
    path = tmp_path / "some.gguf"
    path.write_bytes(b"GGUF")
    check_downloaded(path)
