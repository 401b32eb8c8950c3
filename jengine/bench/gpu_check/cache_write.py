"""The write of new keys and values into a cache: the kernel against the scatter."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from jengine.bench.gpu_check.recorder import CheckError
from jengine.bench.gpu_check.target import Target
from jengine.bench.gpu_check.timing import Timing, time_chain
from kernels_pallas.paged_attention import pallas_write_kv, write_kv

_CHAIN = 16  # writes in one program


class WriteShape(NamedTuple):
    """Sizes of a write.

    Attributes:
      tokens: that are written; one more is padding, whose slot there is not.
      kv_heads: key and value heads.
      head_dim: features of a head.
      num_blocks: of the cache.
      block_size: tokens of a block.
      dtype: of everything.
    """

    tokens: int
    kv_heads: int
    head_dim: int
    num_blocks: int
    block_size: int = 16
    dtype: str = "bfloat16"


class WriteArrays(NamedTuple):
    """The arguments of a write, numpy's or jax's.

    Attributes:
      keys: [N, K, B, D], cached.
      values: likewise.
      new_keys: [T, K, D].
      new_values: likewise.
      slots: [T].
    """

    keys: Any
    values: Any
    new_keys: Any
    new_values: Any
    slots: Any


def make_write(shape: WriteShape) -> WriteArrays:
    """Make random arguments; no two tokens have the same slot."""
    rng = np.random.default_rng(0)
    kind = np.dtype(getattr(ml_dtypes, shape.dtype, None) or shape.dtype)
    cache = (shape.num_blocks, shape.kv_heads, shape.block_size, shape.head_dim)
    new = (shape.tokens + 1, shape.kv_heads, shape.head_dim)
    num_slots = shape.num_blocks * shape.block_size
    slots = np.append(rng.permutation(num_slots)[: shape.tokens], num_slots)
    keys, values, new_keys, new_values = (
        rng.standard_normal(size, dtype=np.float32).astype(kind)
        for size in (cache, cache, new, new)
    )
    return WriteArrays(keys, values, new_keys, new_values, slots.astype(np.int32))


def expected_write(arrays: WriteArrays) -> tuple[np.ndarray, np.ndarray]:
    """Return keys and values after the write."""
    num_blocks, _, block_size, _ = arrays.keys.shape
    keys, values = arrays.keys.copy(), arrays.values.copy()
    for token, slot in enumerate(arrays.slots):
        if slot < num_blocks * block_size:
            block, offset = divmod(slot, block_size)
            keys[block, :, offset] = arrays.new_keys[token]
            values[block, :, offset] = arrays.new_values[token]
    return keys, values


def check_write(shape: WriteShape, *, interpret: bool) -> Mapping[str, Any]:
    """Run the kernel and compare every slot of the cache.

    Raises:
      CheckError: a slot differs.
    """
    arrays = make_write(shape)
    write = jax.jit(pallas_write_kv, static_argnames="interpret", donate_argnums=(0, 1))
    found = write(*(jnp.asarray(a) for a in arrays), interpret=interpret)
    wrong = sum(
        int((np.asarray(a).view(np.uint8) != b.view(np.uint8)).any(axis=(1, 3)).sum())
        for a, b in zip(found, expected_write(arrays), strict=True)
    )
    if wrong:
        raise CheckError(f"{wrong} slots differ", slots_wrong=wrong)
    return {"slots_wrong": 0, "summary": f"{shape.tokens} tokens, every slot right"}


def time_write(shape: WriteShape, backend: str, target: Target) -> Timing:
    """Time writes in place, one after another in one program."""
    arrays = WriteArrays(
        *(jax.device_put(array, target.device) for array in make_write(shape))
    )
    write: Callable[..., Any] = write_kv
    if backend == "pallas":
        write = functools.partial(pallas_write_kv, interpret=target.interpret)

    def run(cache: Any, new: Any, slots: Any) -> Any:
        for _ in range(_CHAIN):
            cache = jax.lax.optimization_barrier(write(*cache, *new, slots))
        return cache

    program = jax.jit(run, donate_argnums=0)
    return time_chain(
        lambda cache: program(cache, arrays[2:4], arrays.slots),
        arrays[:2],
        calls=_CHAIN,
    )
