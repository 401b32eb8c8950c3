import struct

import gguf
import numpy as np
import pytest

from jengine.errors import CheckpointError, UnsupportedError
from jengine.gguf_header import read_header


@pytest.fixture
def small(tmp_path):
    """Every kind of metadata value and two tensors."""
    path = tmp_path / "small.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("k.uint8", 200)
    writer.add_int8("k.int8", -3)
    writer.add_uint16("k.uint16", 60_000)
    writer.add_int16("k.int16", -30_000)
    writer.add_uint32("k.uint32", 4_000_000_000)
    writer.add_int32("k.int32", -5)
    writer.add_uint64("k.uint64", 2**60)
    writer.add_int64("k.int64", -(2**60))
    writer.add_float32("k.float32", 0.5)
    writer.add_float64("k.float64", 0.1)
    writer.add_bool("k.bool", True)
    writer.add_string("k.string", "grüß 你好")
    writer.add_array("k.ints", [1, 2, 3])
    writer.add_array("k.floats", [0.5, -0.5])
    writer.add_array("k.strings", ["a", "", "你"])
    writer.add_array("k.bools", [True, False])
    writer.add_tensor("a.weight", np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.add_tensor("b.weight", np.arange(5, dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def assert_equals_gguf(path):
    header, reference = read_header(path), gguf.GGUFReader(path)
    wanted = {
        key: field.contents()
        for key, field in reference.fields.items()
        if not key.startswith("GGUF.")
    }
    assert header.metadata == wanted
    assert list(header.tensors) == [tensor.name for tensor in reference.tensors]
    for tensor in reference.tensors:
        place = header.tensors[tensor.name]
        assert place.shape == tuple(reversed(tensor.shape.tolist()))
        assert place.type_id == tensor.tensor_type
        assert place.offset == tensor.data_offset


def test_header_equals_that_of_the_gguf_package(small):
    assert_equals_gguf(small)


def test_ckp_03_every_cut_in_the_header_names_the_file(small, tmp_path):
    whole = small.read_bytes()
    start = read_header(small).tensors["a.weight"].offset
    cut = tmp_path / "cut.gguf"
    for size in range(1, start - 32, 3):
        cut.write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match=r"cut\.gguf"):
            read_header(cut)


def test_not_gguf(tmp_path):
    path = tmp_path / "other.gguf"
    path.write_bytes(b"PK\x03\x04 this is a zip file")
    with pytest.raises(CheckpointError, match="not a GGUF file"):
        read_header(path)


@pytest.mark.parametrize("version", [1, 4, 0x03000000])
def test_unknown_version(small, version):
    data = bytearray(small.read_bytes())
    data[4:8] = struct.pack("<I", version)
    small.write_bytes(data)
    with pytest.raises(UnsupportedError, match=rf"version {version:#x}; supported: 2"):
        read_header(small)


def test_rubbish_sizes_do_not_ask_for_the_memory(small):
    data = bytearray(small.read_bytes())
    data[24:32] = struct.pack("<Q", 2**62)  # length of the first key
    small.write_bytes(data)
    with pytest.raises(CheckpointError, match="ends too early at byte 32"):
        read_header(small)


def test_unknown_value_type(tmp_path):
    path = tmp_path / "odd.gguf"
    key = struct.pack("<Q", 1) + b"k" + struct.pack("<I", 99)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + key)
    with pytest.raises(CheckpointError, match="unknown type 99"):
        read_header(path)
