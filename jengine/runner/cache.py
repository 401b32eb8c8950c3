"""Size the KV pool from memory, and allocate it."""

from typing import Any

import jax.numpy as jnp
import psutil

from jengine.runner.device import Device
from models.config import ModelConfig
from models.kv_cache import KVCache, LayerCache

# The CPU's memory is everybody's, and a pool costs its pages as soon as it is made.
_CPU_SHARE = 0.0625


def block_bytes(config: ModelConfig, block_size: int, dtype: Any) -> int:
    """Bytes of one block over all layers, keys and values."""
    return config.kv_bytes_per_token(jnp.dtype(dtype).itemsize) * block_size


def pool_bytes(device: Device, utilization: float) -> int:
    """Bytes that the KV pool may take on a device, after the weights.

    On a CPU it goes by all memory rather than by what is free, as long as that
    suffices: the pool's size is part of every compiled program, and a size that
    differs from start to start would make each start compile anew.

    Args:
      device: where the pool will lie.
      utilization: share of an accelerator's memory that the engine may use in
        all. On a CPU it scales a sixteenth of all memory.
    """
    stats = None if device.platform == "cpu" else device.memory_stats()
    if stats is None:
        memory = psutil.virtual_memory()
        return int(min(memory.total * _CPU_SHARE, memory.available / 2) * utilization)
    return int(stats["bytes_limit"] * utilization) - stats["bytes_in_use"]


def allocate(
    config: ModelConfig,
    *,
    num_blocks: int,
    block_size: int,
    dtype: Any,
    device: Device,
) -> KVCache:
    """Return a cache of zeros.

    Zeros, not uninitialised memory: padding reads the null block.
    """
    shape = (num_blocks, config.num_kv_heads, block_size, config.head_dim)

    def layer() -> LayerCache:
        # Two calls, because keys and values are donated separately.
        return LayerCache(
            jnp.zeros(shape, dtype, device=device),
            jnp.zeros(shape, dtype, device=device),
        )

    return KVCache(tuple(layer() for _ in range(config.num_layers)))
