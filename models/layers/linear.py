"""Matrix product with weights stored as checkpoints store them, `[out, in]`."""

import functools
from typing import Any

import jax.numpy as jnp
from flax import nnx
from jax import lax
from jaxtyping import Array, Float

_LAST_AXES = (((1,), (1,)), ((), ()))  # contract the last axis of both
_MAX_FEW_ROWS = 64


class Linear(nnx.Module):
    """`x @ weight.T + bias`, with parameters that a loader fills.

    Attributes:
      sum_over: mesh axis over which the inputs are split, so that each device has a
        part of every sum; None where they are whole.
    """

    def __init__(self, num_in: int, num_out: int, *, bias: bool, dtype: jnp.dtype):
        self.weight = nnx.Param(jnp.zeros((num_out, num_in), dtype))
        self.bias = nnx.Param(jnp.zeros((num_out,), dtype)) if bias else None
        self.sum_over: str | None = None

    def __call__(self, x: Float[Array, "T I"]) -> Float[Array, "T O"]:
        """Apply to each token."""
        out = matmul(x, self.weight[...])
        if self.sum_over is not None:
            out = lax.psum(out, self.sum_over)
        return out if self.bias is None else out + self.bias[...][None, :]


def matmul(
    x: Float[Array, "T I"],
    weight: Float[Array, "O I"],
    *,
    out_dtype: jnp.dtype | None = None,
) -> Float[Array, "T O"]:
    """Multiply each row of `x` by the transposed weight.

    One layout of the weight serves every number of rows, and lets the embedding
    double as the head without a second copy.

    Args:
      x: rows.
      weight: as checkpoints store it.
      out_dtype: of the product, which is not rounded to another in between; None
        is the dtype of `x`.

    Returns:
      The product. float32 inputs are multiplied as float32:
      without saying so an NVIDIA GPU would round them to 10 bits of mantissa.
    """
    few_rows = 1 < x.shape[0] <= _MAX_FEW_ROWS
    options = {
        "precision": lax.Precision.HIGHEST if x.dtype == jnp.float32 else None,
        "preferred_element_type": out_dtype,
    }
    rows_first = functools.partial(_rows_first, **options)
    cpu = functools.partial(_weight_first, **options) if few_rows else rows_first
    return lax.platform_dependent(x, weight, cpu=cpu, default=rows_first)


def _rows_first(
    x: Float[Array, "T I"], weight: Float[Array, "O I"], **options: Any
) -> Float[Array, "T O"]:
    return lax.dot_general(x, weight, _LAST_AXES, **options)


def _weight_first(
    x: Float[Array, "T I"], weight: Float[Array, "O I"], **options: Any
) -> Float[Array, "T O"]:
    """Compute `(weight @ x.T).T`, which XLA:CPU does twice as fast for a few rows.

    A chain of the products of a 135M model, two threads, median ms, rows first
    against weight first: 2 rows 311 / 160, 8 rows 373 / 186, 16 rows 366 / 167,
    64 rows 695 / 678, 128 rows 1107 / 1225 (jax 0.10.2 on a busy machine, runs
    alternating). Without the barrier XLA turns it back into rows first.
    """
    out = lax.dot_general(weight, x, _LAST_AXES, **options)  # [O, T]
    return lax.optimization_barrier(out).T
