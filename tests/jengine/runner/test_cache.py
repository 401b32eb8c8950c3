"""Bytes of the KV pool: closed forms, and the arrays themselves."""

import collections
import dataclasses
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import psutil
import pytest

from jengine.runner.cache import allocate, block_bytes, pool_bytes
from models.config import ModelConfig

TINYLLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 32000,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16",
}
GIB = 1024**3
unchecked = inspect.unwrap(pool_bytes)  # takes a device that is none


@pytest.mark.parametrize(
    ("block_size", "dtype", "expected"),
    [
        # 2 x 22 layers x 4 heads x 64 features x 2 bytes = 22 528 a token.
        (16, "bfloat16", 360_448),
        (16, jnp.bfloat16, 360_448),
        (1, "float16", 22_528),
        (16, "float32", 720_896),
    ],
)
def test_f2_bytes_of_a_block_of_tinyllama(block_size, dtype, expected):
    config = ModelConfig.from_hf(TINYLLAMA)
    assert block_bytes(config, block_size, dtype) == expected


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_pool_takes_the_bytes_of_its_blocks(dtype):
    config = ModelConfig.from_hf(
        TINYLLAMA | {"num_hidden_layers": 3, "num_key_value_heads": 2}
    )
    device = jax.local_devices()[0]
    cache = allocate(config, num_blocks=5, block_size=8, dtype=dtype, device=device)
    leaves = jax.tree.leaves(cache)
    assert len(cache.layers) == 3
    assert {leaf.shape for leaf in leaves} == {(5, 2, 8, 64)}
    assert {leaf.dtype for leaf in leaves} == {jnp.dtype(dtype)}
    assert {leaf.device for leaf in leaves} == {device}
    assert sum(leaf.nbytes for leaf in leaves) == 5 * block_bytes(config, 8, dtype)
    assert not any(np.asarray(leaf, np.float32).any() for leaf in leaves)
    # Each is donated on its own, so no two may share memory.
    assert len({leaf.unsafe_buffer_pointer() for leaf in leaves}) == 6


@dataclasses.dataclass
class Device:
    """As much of a jax device as is asked."""

    platform: str
    stats: dict | None

    def memory_stats(self):
        assert self.platform != "cpu"
        return self.stats


@pytest.mark.parametrize(
    ("utilization", "in_use", "expected"),
    [(0.5, 0, 40 * GIB), (0.5, 8 * GIB, 32 * GIB), (1.0, 8 * GIB, 72 * GIB)],
)
def test_an_accelerator_gives_its_share_less_what_is_taken(
    utilization, in_use, expected
):
    stats = {"bytes_limit": 80 * GIB, "bytes_in_use": in_use}
    assert unchecked(Device("gpu", stats), utilization) == expected


def _memory(monkeypatch, total, available):
    kind = collections.namedtuple("memory", "total available")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: kind(total, available))


def test_a_cpu_gives_a_sixteenth_of_its_memory(monkeypatch):
    _memory(monkeypatch, 64 * GIB, 60 * GIB)
    assert unchecked(Device("cpu", None), 0.5) == 2 * GIB
    _memory(monkeypatch, 64 * GIB, 40 * GIB)  # others' use changes nothing
    assert unchecked(Device("cpu", None), 0.5) == 2 * GIB
    _memory(monkeypatch, 64 * GIB, 2 * GIB)  # unless they leave too little
    assert unchecked(Device("cpu", None), 0.5) == GIB // 2


def test_an_accelerator_that_tells_nothing_counts_as_a_cpu(monkeypatch):
    _memory(monkeypatch, 64 * GIB, 60 * GIB)
    assert unchecked(Device("gpu", None), 1.0) == 4 * GIB


def test_this_machine_has_room_for_a_pool():
    assert pool_bytes(jax.local_devices()[0], 0.92) > 2**20
