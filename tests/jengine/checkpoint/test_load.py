import dataclasses
import math
import tracemalloc

import ml_dtypes
import numpy as np
import pytest

from jengine.checkpoint import Checkpoint, Target, iter_parameters, load_parameters
from jengine.errors import CheckpointError


@dataclasses.dataclass
class FakeReader:
    """Tensors in memory, and which of them were read."""

    tensors: dict[str, np.ndarray]
    reads: list[str] = dataclasses.field(default_factory=list)

    def names(self):
        return self.tensors.keys()

    def shape(self, name):
        return self.tensors[name].shape

    def dtype(self, name):
        return self.tensors[name].dtype

    def location(self, name):
        return f"file-of-{name}"

    def read(self, name):
        self.reads.append(name)
        return self.tensors[name]


def checkpoint(**tensors) -> Checkpoint:
    """Keywords cannot hold dots: `a__weight` stands for "a.weight"."""
    named = {name.replace("__", "."): values for name, values in tensors.items()}
    return Checkpoint(
        path="the-folder",
        config={},
        generation_config={},
        tensors=FakeReader(named),
        tokenizer_path="the-folder",
    )


def f32(*shape, start=0.0):
    values = start + np.arange(math.prod(shape), dtype=np.float32)
    return values.reshape(shape)


def test_pieces_are_stacked_in_order():
    q, k, v = f32(4, 3), f32(2, 3, start=100), f32(2, 3, start=200)
    target = {"qkv": Target((8, 3), ("q", "k", "v"))}
    found = load_parameters(checkpoint(v=v, q=q, k=k), target, "float32")["qkv"]
    np.testing.assert_array_equal(found, np.concatenate([q, k, v]))
    assert found.dtype == np.float32


@pytest.mark.parametrize("spelling", ["bfloat16", np.dtype(ml_dtypes.bfloat16)])
def test_dtype_spellings(spelling):
    found = load_parameters(checkpoint(a=f32(3)), {1: Target((3,), ("a",))}, spelling)
    assert found[1].dtype == ml_dtypes.bfloat16


def test_ckp_07_unknown_dtype_lists_the_known():
    with pytest.raises(CheckpointError, match="'int7'; allowed: float32, float16, bfl"):
        load_parameters(checkpoint(), {}, "int7")


@pytest.mark.parametrize("stored", ["bfloat16", "float16"])
def test_ckp_07_upcast_keeps_every_bit(stored):
    """All 65536 patterns, infinities and NaN included."""
    dtype = np.dtype(ml_dtypes.bfloat16 if stored == "bfloat16" else stored)
    values = np.arange(65536, dtype=np.uint16).view(dtype)
    target = {"a": Target((65536,), ("a",))}
    found = load_parameters(checkpoint(a=values), target, "float32")["a"]
    if stored == "bfloat16":
        wanted = (np.arange(65536, dtype=np.uint32) << 16).view(np.float32)
    else:
        wanted = np.array([np.float32(value) for value in values])
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


def test_ckp_07_mixed_formats_meet_in_one_parameter():
    pieces = {
        "a": f32(2, 2),
        "b": f32(2, 2).astype(np.float16),
        "c": f32(2, 2).astype(ml_dtypes.bfloat16),
        "d": f32(2, 2).astype(np.float64),
    }
    target = {"all": Target((8, 2), tuple(pieces))}
    found = load_parameters(checkpoint(**pieces), target, "float32")["all"]
    np.testing.assert_array_equal(found, np.concatenate([f32(2, 2)] * 4))


@pytest.mark.parametrize(
    ("stored", "value", "wanted"),
    [
        ("float32", 7e4, "float16"),
        ("bfloat16", 7e4, "float16"),
        ("float64", 1e39, "float32"),
        ("float32", 3.4e38, "bfloat16"),
    ],
)
def test_ckp_07_overflow_names_the_tensor(stored, value, wanted):
    dtype = ml_dtypes.bfloat16 if stored == "bfloat16" else stored
    values = np.array([1.0, value], dtype)
    target = {"x": Target((2,), ("a.weight",))}
    with pytest.raises(
        CheckpointError, match=rf"a\.weight holds .* overflows {wanted}"
    ):
        load_parameters(checkpoint(a__weight=values), target, wanted)


def test_values_that_were_never_finite_pass():
    values = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    target = {"a": Target((4,), ("a",))}
    found = load_parameters(checkpoint(a=values), target, "float16")["a"]
    np.testing.assert_array_equal(found, values.astype(np.float16))


def test_rounding_is_to_nearest():
    values = np.array([1 + 2**-8, 1 + 3 * 2**-8], np.float32)  # ties, to even
    target = {"a": Target((2,), ("a",))}
    found = load_parameters(checkpoint(a=values), target, "bfloat16")["a"]
    np.testing.assert_array_equal(found.astype(np.float32), [1.0, 1 + 2**-6])


def test_ckp_02_missing_tensor_is_named():
    source = checkpoint(a=f32(2))
    targets = {"p": Target((4,), ("a", "b.weight"))}
    with pytest.raises(
        CheckpointError, match=r"the-folder: tensor b\.weight is missing"
    ):
        load_parameters(source, targets, "float32")
    assert source.tensors.reads == []


def test_ckp_02_unknown_extra_tensor_is_named():
    source = checkpoint(a=f32(2), b__weight=f32(2))
    with pytest.raises(
        CheckpointError, match=r"file-of-b\.weight: tensor b\.weight is"
    ):
        load_parameters(source, {"p": Target((2,), ("a",))}, "float32")


def test_long_lists_are_cut():
    names = tuple(f"t{i}" for i in range(9))
    with pytest.raises(CheckpointError, match="t0, t1, t2, t3, t4 and 4 more"):
        load_parameters(checkpoint(), {"p": Target((9,), names)}, "float32")


@pytest.mark.parametrize(
    "extra",
    [
        "rotary_emb__inv_freq",
        "model__layers__0__self_attn__rotary_emb__inv_freq",
        "lm_head__weight",
    ],
)
def test_ckp_02_known_extras_are_ignored(extra):
    source = checkpoint(a=f32(2), **{extra: f32(2)})
    found = load_parameters(source, {"p": Target((2,), ("a",))}, "float32")
    assert found.keys() == {"p"}
    assert source.tensors.reads == ["a"]


@pytest.mark.parametrize("shape", [(3, 4), (2, 5), (8,), (2, 2, 2), ()])
def test_ckp_03_misshaped_tensor_is_named(shape):
    source = checkpoint(a=np.zeros(shape, np.float32))
    with pytest.raises(
        CheckpointError, match=r"file-of-a.*asks for \[2, 4\]"
    ) as caught:
        load_parameters(source, {"p": Target((2, 4), ("a",))}, "float32")
    assert str(list(shape)) in str(caught.value)


def test_misshaped_piece_is_named():
    source = checkpoint(q=f32(4, 3), k=f32(2, 3))
    with pytest.raises(CheckpointError, match=r"q \[4, 3\], k \[2, 3\].*\[8, 3\] when"):
        load_parameters(source, {"p": Target((8, 3), ("q", "k"))}, "float32")


def test_parameters_are_read_when_they_are_reached():
    names = [f"t{i}" for i in range(20)]
    source = checkpoint(**{name: f32(2) for name in names})
    targets = {name: Target((2,), (name,)) for name in names}
    iterator = iter_parameters(source, targets, "float32")
    assert source.tensors.reads == []
    assert next(iterator)[0] == "t0"
    assert len(source.tensors.reads) < 6
    assert [path for path, _ in iterator] == names[1:]


def test_a_failing_read_surfaces():
    source = checkpoint(a=f32(2), b=f32(2))

    def fail(name):
        raise CheckpointError(f"disk lost {name}")

    source.tensors.read = fail
    targets = {name: Target((2,), (name,)) for name in ("a", "b")}
    with pytest.raises(CheckpointError, match="disk lost a"):
        load_parameters(source, targets, "float32")


def test_peak_memory_is_near_the_result(write_folder, make_config, make_targets):
    """Sixteen fused parameters of 2 MB each: the peak is not twice the sum."""
    from jengine.checkpoint import open_checkpoint

    names = [f"model.layers.{i}.{p}" for i in range(16) for p in ("gate", "up")]
    size = 262144  # of a piece, in numbers
    folder = write_folder({}, {n: np.ones((size,), np.float32) for n in names})
    source = open_checkpoint(folder)
    targets = {
        i: Target((2 * size,), tuple(names[2 * i : 2 * i + 2])) for i in range(16)
    }
    result = 16 * 2 * size * 4
    tracemalloc.start()
    found = load_parameters(source, targets, "float32")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found) == 16
    assert result <= peak < 1.3 * result
