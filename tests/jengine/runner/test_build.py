"""How many blocks, and what is said when they do not suffice."""

import inspect
import logging
import types

import jax
import pytest

from jengine.checkpoint import open_checkpoint
from jengine.config import EngineConfig, ModelLimits, resolve
from jengine.errors import (
    CheckpointError,
    ConfigError,
    DeviceError,
    OutOfMemoryError,
    UnsupportedError,
)
from jengine.runner.build import (
    build_runner,
    decide_num_blocks,
    default_device,
    read_config,
)
from jengine.runner.runner import RunnerLimits

BLOCK = 1000  # bytes


@pytest.mark.parametrize(
    ("error", "platforms", "words"),
    [
        (AssertionError(), "cuda", "on JAX_PLATFORMS=cuda: AssertionError; unset it"),
        (
            RuntimeError("no\n cuDNN"),
            None,
            "on this machine: no cuDNN; `jengine doctor`",
        ),
    ],
)
def test_jax_that_does_not_start(monkeypatch, error, platforms, words):
    def refuse():
        raise error

    monkeypatch.setattr(jax, "local_devices", refuse)
    monkeypatch.setattr(type(jax.config), "jax_platforms", platforms)
    with pytest.raises(DeviceError, match=words):
        default_device()


def resolved(**options):
    defaults = {"max_num_seqs": 4, "max_model_len": 64, "compilation_cache_dir": False}
    limits = ModelLimits(
        vocab_size=320, max_position_embeddings=512, dtype="float32", platform="cpu"
    )
    return resolve(EngineConfig(model="m", **(defaults | options)), limits)


@pytest.mark.parametrize(
    ("options", "memory", "expected"),
    [
        ({}, 10 * BLOCK, 10),
        ({}, 10 * BLOCK + 999, 10),
        # Four requests of four blocks can never use more, and one is for padding.
        ({}, 10**9, 17),
        ({"block_size": 32}, 10**9, 9),
        ({"block_size": 64}, 10**9, 5),
        ({"max_model_len": 65}, 10**9, 21),
        ({"kv_cache_memory_bytes": 7 * BLOCK}, 10**9, 7),
        ({"kv_cache_memory_bytes": 7 * BLOCK}, 0, 7),
        ({"kv_cache_memory_bytes": 10**9}, 0, 17),
        ({"num_gpu_blocks_override": 30}, 0, 30),
        ({"num_gpu_blocks_override": 5, "kv_cache_memory_bytes": 1}, 10**9, 5),
        ({"max_model_len": "auto"}, 3 * BLOCK, 3),
        ({"max_model_len": "auto"}, 10**9, 4 * 32 + 1),
    ],
)
def test_decide_num_blocks(options, memory, expected):
    found = decide_num_blocks(
        resolved(**options), block_bytes=BLOCK, memory_bytes=memory
    )
    assert found == expected


@pytest.mark.parametrize("num_blocks", [100, 1000, 12_345, 99_999])
def test_about_as_much_memory_gives_as_many_blocks(num_blocks):
    config = resolved(max_num_seqs=4096, max_model_len=512, max_num_batched_tokens=4096)
    found = {
        decide_num_blocks(config, block_bytes=BLOCK, memory_bytes=memory)
        for memory in (num_blocks * BLOCK, num_blocks * BLOCK + 900)
    }
    assert len(found) == 1
    assert num_blocks * 0.98 < found.pop() <= num_blocks


@pytest.mark.parametrize(
    ("options", "memory"),
    [
        ({}, BLOCK),
        ({}, 0),
        ({}, -(10**9)),
        ({"kv_cache_memory_bytes": 1}, 10**9),
        ({"max_model_len": "auto"}, BLOCK),
    ],
)
def test_a_pool_needs_two_blocks(options, memory):
    with pytest.raises(ConfigError, match=r"KV pool is .*at least 2 blocks"):
        decide_num_blocks(resolved(**options), block_bytes=BLOCK, memory_bytes=memory)


def test_a_length_that_was_asked_for_must_fit():
    config = resolved(max_model_len=64)
    enough = 5 * BLOCK
    words = rf"is 64; .* 48 tokens.*kv_cache_memory_bytes = {enough} is enough"
    with pytest.raises(ConfigError, match=words):
        decide_num_blocks(config, block_bytes=BLOCK, memory_bytes=4 * BLOCK)
    given = resolved(max_model_len=64, kv_cache_memory_bytes=enough)
    assert decide_num_blocks(given, block_bytes=BLOCK, memory_bytes=0) == 5
    assert decide_num_blocks(config, block_bytes=BLOCK, memory_bytes=5 * BLOCK) == 5


@pytest.mark.parametrize(
    "options", [{"max_model_len": None}, {"num_gpu_blocks_override": 4}]
)
def test_otherwise_a_pool_that_is_too_small_is_warned_of(caplog, options):
    with caplog.at_level(logging.WARNING, "jengine"):
        decide_num_blocks(
            resolved(**options), block_bytes=BLOCK, memory_bytes=4 * BLOCK
        )
    (record,) = caplog.records
    assert "holds 48 tokens, less than max_model_len" in record.getMessage()


@pytest.mark.parametrize(
    ("options", "memory"),
    [({"max_model_len": "auto"}, 4 * BLOCK), ({}, 5 * BLOCK), ({}, 10**9)],
)
def test_nothing_is_said_of_a_pool_that_suffices(caplog, options, memory):
    with caplog.at_level(logging.WARNING, "jengine"):
        decide_num_blocks(resolved(**options), block_bytes=BLOCK, memory_bytes=memory)
    assert caplog.records == []


def test_the_first_device_of_this_process():
    assert default_device() == jax.local_devices()[0]


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ({"architectures": ["BertModel"]}, UnsupportedError),
        ({"architectures": []}, CheckpointError),
        ({}, CheckpointError),
    ],
)
def test_configs_that_make_no_model_name_the_checkpoint(config, error):
    checkpoint = types.SimpleNamespace(path="some/where", config=config)
    with pytest.raises(error, match=r"some/where: .*architecture"):
        inspect.unwrap(read_config)(checkpoint)


@pytest.mark.parametrize(
    ("options", "limits"),
    [
        (
            {"num_gpu_blocks_override": 5, "max_num_batched_tokens": 16},
            RunnerLimits(5, 16, 4, 16, 64, 20),
        ),
        (
            {"num_gpu_blocks_override": 3, "max_logprobs": -1, "block_size": 8},
            RunnerLimits(3, 8, 4, 256, 16, 320),
        ),
    ],
)
def test_build_runner(f2_dir, caplog, options, limits):
    checkpoint = open_checkpoint(f2_dir)
    with caplog.at_level(logging.INFO, "jengine"):
        runner = build_runner(
            checkpoint, read_config(checkpoint), resolved(**options), default_device()
        )
    assert runner.limits == limits
    assert f"KV pool: {limits.num_blocks} blocks" in caplog.text
    assert runner.num_programs == 0


def test_a_pool_larger_than_any_memory_is_refused_with_its_size(f2_dir):
    checkpoint = open_checkpoint(f2_dir)
    config = resolved(num_gpu_blocks_override=10**12)
    with pytest.raises(
        OutOfMemoryError, match=r"KV pool of \d+\.\d GiB .* Lower num_gpu"
    ):
        build_runner(checkpoint, read_config(checkpoint), config, default_device())
