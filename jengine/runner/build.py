"""Builds a runner: model in place, KV pool sized, compilation cache on."""

import logging
from collections.abc import Mapping
from typing import Any

import jax

from jengine.checkpoint import Checkpoint
from jengine.config import ResolvedConfig
from jengine.errors import CheckpointError, ConfigError, DeviceError, UnsupportedError
from jengine.runner.cache import block_bytes, pool_bytes
from jengine.runner.compilation_cache import enable_compilation_cache
from jengine.runner.device import Device
from jengine.runner.load import LoadedModel, load_model
from jengine.runner.memory import naming_what_does_not_fit
from jengine.runner.random_model import random_model
from jengine.runner.runner import ModelRunner, RunnerLimits
from models.config import ModelConfig, ModelConfigError, UnsupportedModelError

logger = logging.getLogger(__name__)

_PLATFORMS = "jax_platforms"


def default_device() -> Device:
    """Return the device that the model will lie on.

    Raises:
      DeviceError: jax cannot start; it says so in several ways, by its version.
    """
    try:
        return jax.local_devices()[0]
    except (RuntimeError, AssertionError) as error:
        asked = getattr(jax.config, _PLATFORMS)
        where = f"on JAX_PLATFORMS={asked}" if asked else "on this machine"
        why = " ".join(str(error).split()) or type(error).__name__
        way_out = "unset it to compute on what there is; " if asked else ""
        raise DeviceError(
            f"jax cannot start {where}: {why}; {way_out}`jengine doctor` says what is"
            " missing"
        ) from error


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """Parse the checkpoint's config; raises as `parse_config` does."""
    return parse_config(checkpoint.path, checkpoint.config)


def parse_config(path: str, config: Mapping[str, Any]) -> ModelConfig:
    """Parse what a `config.json` holds.

    Args:
      path: of the checkpoint, for messages.
      config: the parsed file.

    Raises:
      UnsupportedError: jengine cannot run this model; the message says why.
      CheckpointError: the config makes no sense.
    """
    try:
        return ModelConfig.from_hf(dict(config))
    except UnsupportedModelError as error:
        raise UnsupportedError(f"{path}: {error}") from error
    except ModelConfigError as error:
        raise CheckpointError(f"{path}: {error}") from error


def build_runner(
    checkpoint: Checkpoint,
    model_config: ModelConfig,
    resolved: ResolvedConfig,
    device: Device,
) -> ModelRunner:
    """Load the weights and allocate a KV pool in what memory is left.

    Raises:
      CheckpointError: the weights do not fit the config.
      ConfigError: the pool cannot hold a single request of full length.
      OutOfMemoryError: the weights or the pool do not fit.
    """
    enable_compilation_cache(resolved.asked.compilation_cache_dir, device)
    with naming_what_does_not_fit(
        f"the model in {resolved.dtype}",
        "Take a smaller one, or dtype='bfloat16' where that is float32.",
    ):
        model = _make_model(checkpoint, model_config, resolved, device)
    bytes_of_block = block_bytes(model_config, resolved.block_size, resolved.dtype)
    num_blocks = decide_num_blocks(
        resolved,
        block_bytes=bytes_of_block,
        memory_bytes=pool_bytes(device, resolved.asked.gpu_memory_utilization),
    )
    capacity = (num_blocks - 1) * resolved.block_size
    max_logprobs = resolved.max_logprobs
    limits = RunnerLimits(
        num_blocks=num_blocks,
        block_size=resolved.block_size,
        max_num_seqs=resolved.max_num_seqs,
        token_budget=resolved.max_num_batched_tokens,
        max_model_len=min(resolved.max_model_len, capacity),
        max_logprobs=resolved.vocab_size if max_logprobs == -1 else max_logprobs,
        logprobs_mode=resolved.asked.logprobs_mode,
    )
    logger.info(
        "KV pool: %d blocks, %d tokens, %.1f requests of %d tokens",
        num_blocks,
        capacity,
        capacity / limits.max_model_len,
        limits.max_model_len,
    )
    with naming_what_does_not_fit(
        f"the KV pool of {num_blocks * bytes_of_block / 2**30:.1f} GiB",
        "Lower num_gpu_blocks_override, kv_cache_memory_bytes or "
        "gpu_memory_utilization, whichever decides its size.",
    ):
        return ModelRunner(
            model, limits, device=device, attention=resolved.attention_backend
        )


def _make_model(
    checkpoint: Checkpoint,
    config: ModelConfig,
    resolved: ResolvedConfig,
    device: Device,
) -> LoadedModel:
    if resolved.asked.load_format == "dummy":
        return random_model(checkpoint.config, dtype=resolved.dtype, device=device)
    return load_model(checkpoint, config, resolved.dtype, device)


def decide_num_blocks(
    resolved: ResolvedConfig, *, block_bytes: int, memory_bytes: int
) -> int:
    """Size the pool, the null block included.

    Args:
      resolved: the engine's limits, and what was asked.
      block_bytes: bytes of one block over all layers.
      memory_bytes: bytes that may be used if nothing else was asked for.

    Raises:
      ConfigError: not even one block fits, or the asked-for `max_model_len` does
        not. A limit that was not asked for is lowered instead, with a warning.
    """
    asked = resolved.asked
    if asked.num_gpu_blocks_override is not None:
        num_blocks = asked.num_gpu_blocks_override
    else:
        most = resolved.max_num_seqs * resolved.max_blocks_per_request + 1
        exact = asked.kv_cache_memory_bytes
        fitting = (
            exact // block_bytes if exact else _steady(memory_bytes // block_bytes)
        )
        num_blocks = min(most, fitting)
    if num_blocks < 2:
        raise ConfigError(
            "the KV pool",
            f"{num_blocks} blocks of {block_bytes} bytes",
            "at least 2 blocks, one of them for padding",
            "Give it more memory (kv_cache_memory_bytes, gpu_memory_utilization) "
            "or raise num_gpu_blocks_override.",
        )
    needed = (resolved.max_blocks_per_request + 1) * block_bytes
    _check_capacity(resolved, (num_blocks - 1) * resolved.block_size, needed)
    return num_blocks


def _steady(num_blocks: int) -> int:
    """Round down by less than 2 %, so that about as much memory gives the same.

    The pool's size is part of every compiled program: programs kept from an earlier
    start are of use only if it has not changed.
    """
    step = 1 << max(0, num_blocks.bit_length() - 7)
    return num_blocks - num_blocks % step


def _check_capacity(resolved: ResolvedConfig, capacity: int, needed: int) -> None:
    """Compare the pool, of so many tokens, with the longest request and its bytes."""
    asked: Any = resolved.asked
    if capacity >= resolved.max_model_len or resolved.fit_max_model_len:
        return
    by_memory = asked.num_gpu_blocks_override is None
    if by_memory and asked.max_model_len is not None:
        raise ConfigError(
            "max_model_len",
            resolved.max_model_len,
            f"at most {capacity} tokens, which is what the KV pool holds",
            "Lower it, or give the pool more memory: kv_cache_memory_bytes = "
            f"{needed} is enough, and gpu_memory_utilization may be raised.",
        )
    logger.warning(
        "the KV pool holds %d tokens, less than max_model_len = %d: no request can "
        "have more than %d tokens of prompt and output together",
        capacity,
        resolved.max_model_len,
        capacity,
    )
