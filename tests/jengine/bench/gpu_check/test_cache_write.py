import jax.numpy as jnp
import numpy as np
import pytest

from jengine.bench.gpu_check import cache_write
from jengine.bench.gpu_check.cache_write import (
    WriteShape,
    check_write,
    expected_write,
    make_write,
    time_write,
)
from jengine.bench.gpu_check.recorder import CheckError
from jengine.bench.gpu_check.target import find_target
from kernels_pallas.paged_attention import write_kv

SHAPE = WriteShape(tokens=5, kv_heads=2, head_dim=4, num_blocks=3, block_size=4)


def test_each_token_goes_to_its_own_slot_and_padding_nowhere():
    arrays = make_write(SHAPE)
    assert len(set(arrays.slots.tolist())) == 6
    assert arrays.slots[-1] == 12
    for written, old, new in zip(
        expected_write(arrays), arrays[:2], arrays[2:4], strict=True
    ):
        changed = {
            int(block) * 4 + int(offset)
            for block, offset in np.argwhere((written != old).any(axis=(1, 3)))
        }
        assert changed == set(arrays.slots[:-1].tolist())
        slot = arrays.slots[2]
        np.testing.assert_array_equal(written[slot // 4, :, slot % 4], new[2])


def test_the_kernel_is_checked_slot_by_slot(monkeypatch):
    assert check_write(SHAPE, interpret=True)["slots_wrong"] == 0

    def in_the_wrong_place(keys, values, *new, interpret):
        return write_kv(keys, values, *new[:2], (new[2] + 1) % 12)

    monkeypatch.setattr(cache_write, "pallas_write_kv", in_the_wrong_place)
    with pytest.raises(CheckError, match="slots differ"):
        check_write(SHAPE, interpret=True)


@pytest.mark.parametrize("backend", ["pallas", "scatter"])
def test_writes_are_timed_in_place(backend, monkeypatch):
    states = []

    def once(advance, state, *, calls):
        states.extend([state, advance(state)])
        return cache_write.Timing(1.0, 1.0, 1.0, 1, calls)

    monkeypatch.setattr(cache_write, "time_chain", once)
    monkeypatch.setattr(cache_write, "_CHAIN", 2)
    assert time_write(SHAPE, backend, find_target()).calls == 2
    before, after = states
    assert all(cache.is_deleted() for cache in before)
    for cache, expected in zip(after, expected_write(make_write(SHAPE)), strict=True):
        assert (cache == jnp.asarray(expected)).all()
