"""How fast this device copies and multiplies: what shares are shares of."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jengine.bench.gpu_check.arithmetic import Ceiling
from jengine.bench.gpu_check.target import Target
from jengine.bench.gpu_check.timing import Timing, time_chain

_CHAIN = 4  # products in one program


def time_copy(target: Target, num_bytes: int) -> Timing:
    """Time a copy from device memory to device memory."""
    # What comes out of the barrier is no input to jax, so XLA has to copy.
    copy = jax.jit(lax.optimization_barrier)
    return time_chain(copy, _random(target, (num_bytes // 2,)), samples=5)


def time_update(target: Target, num_bytes: int) -> Timing:
    """Time a kernel that reads an array and writes another of the same size."""
    update = jax.jit(lambda x: -x)
    return time_chain(update, _random(target, (num_bytes // 2,)), samples=5)


def time_read(target: Target, num_bytes: int) -> Timing:
    """Time a kernel that only reads: a sum, which the one before takes part in."""
    values = _random(target, (num_bytes // 2,))
    read = jax.jit(lambda last, x: jnp.sum(x + last, dtype=jnp.float32) * 1e-9)

    def advance(last: Any) -> Any:
        return read(last.astype(jnp.bfloat16), values)

    return time_chain(advance, jnp.float32(0), samples=5)


def time_product(target: Target, size: int) -> Timing:
    """Time the product of two square bfloat16 matrices of random numbers.

    Zeros would be faster than data ever is: a card clocks higher on them.
    """
    x = _random(target, (size, size))
    w = _random(target, (size, size), most=(3.0 / size) ** 0.5)  # products keep size

    def multiply(x: Any, w: Any) -> Any:
        for _ in range(_CHAIN):
            x = lax.optimization_barrier(x @ w)
        return x

    program = jax.jit(multiply)
    return time_chain(lambda x: program(x, w), x, calls=_CHAIN, samples=5)


def measure_ceiling(target: Target, *, num_bytes: int, product_size: int) -> Ceiling:
    """Measure both rates, the copy's as the better of two ways to copy.

    Args:
      target: the device.
      num_bytes: of the array to copy; several times the largest cache.
      product_size: rows of the matrices to multiply.
    """
    fastest = min(
        time_copy(target, num_bytes).seconds, time_update(target, num_bytes).seconds
    )
    product = time_product(target, product_size)
    return Ceiling(2 * num_bytes / fastest, 2 * product_size**3 / product.seconds)


def _random(target: Target, shape: tuple[int, ...], *, most: float = 1.0) -> jax.Array:
    key = jax.random.key(0, impl="rbg")
    with jax.default_device(target.device):
        return jax.random.uniform(key, shape, jnp.bfloat16, minval=-most, maxval=most)
