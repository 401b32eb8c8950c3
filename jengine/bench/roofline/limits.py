"""How fast this device reads memory and multiplies matrices, in a model's dtype."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jengine.bench.gpu_check.timing import time_chain

_CHAIN = 4  # products in one program
_SAMPLES = 5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a device was measured to do.

    Attributes:
      bytes_per_s: reading an array much larger than the caches.
      flops_per_s: multiplying large matrices; a multiplication and an addition are two.
    """

    bytes_per_s: float
    flops_per_s: float


def measure_limits(
    dtype: str, *, num_bytes: int = 2**29, product_size: int = 2048
) -> Limits:
    """Measure both rates, each by the fastest of its samples.

    Args:
      dtype: of the numbers.
      num_bytes: of the array to read; several times the largest cache.
      product_size: rows and columns of the matrices to multiply.
    """
    return Limits(
        bytes_per_s=max(
            _sum_rate(dtype, num_bytes), _vector_product_rate(dtype, num_bytes)
        ),
        flops_per_s=_product_rate(dtype, product_size),
    )


def _sum_rate(dtype: str, num_bytes: int) -> float:
    """Bytes read per second by a sum, in which the one before takes part."""
    values = jnp.ones(num_bytes // jnp.dtype(dtype).itemsize, dtype)
    read = jax.jit(lambda last, x: jnp.sum(x + last.astype(x.dtype), dtype=jnp.float32))
    timing = time_chain(
        lambda last: read(last * 0, values), jnp.float32(0), samples=_SAMPLES
    )
    return values.nbytes / timing.fastest


def _vector_product_rate(dtype: str, num_bytes: int) -> float:
    """Bytes read per second by a matrix times a vector: what a decode step does."""
    size = int((num_bytes // jnp.dtype(dtype).itemsize) ** 0.5)
    matrix = _random((size, size), dtype, most=(3.0 / size) ** 0.5)
    program = jax.jit(lambda w, x: w @ x)
    vector = _random((size,), dtype)
    timing = time_chain(lambda x: program(matrix, x), vector, samples=_SAMPLES)
    return matrix.nbytes / timing.fastest


def _product_rate(dtype: str, size: int) -> float:
    x = _random((size, size), dtype)
    w = _random((size, size), dtype, most=(3.0 / size) ** 0.5)  # products keep size

    def multiply(w: Any, x: Any) -> Any:
        for _ in range(_CHAIN):
            x = lax.optimization_barrier(w @ x)
        return x

    program = jax.jit(multiply)
    timing = time_chain(lambda x: program(w, x), x, calls=_CHAIN, samples=_SAMPLES)
    return 2 * size**3 / timing.fastest


def _random(shape: tuple[int, ...], dtype: str, *, most: float = 1.0) -> jax.Array:
    key = jax.random.key(0)
    return jax.random.uniform(key, shape, jnp.dtype(dtype), minval=-most, maxval=most)
