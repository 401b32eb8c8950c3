"""Matrix product with weights stored as checkpoints store them, `[out, in]`."""

import jax.numpy as jnp
from flax import nnx
from jax import lax
from jaxtyping import Array, Float


class Linear(nnx.Module):
    """`x @ weight.T + bias`, with parameters that a loader fills."""

    def __init__(self, num_in: int, num_out: int, *, bias: bool, dtype: jnp.dtype):
        self.weight = nnx.Param(jnp.zeros((num_out, num_in), dtype))
        self.bias = nnx.Param(jnp.zeros((num_out,), dtype)) if bias else None

    def __call__(self, x: Float[Array, "T I"]) -> Float[Array, "T O"]:
        """Apply to each token."""
        out = matmul(x, self.weight[...])
        return out if self.bias is None else out + self.bias[...][None, :]


def matmul(x: Float[Array, "T I"], weight: Float[Array, "O I"]) -> Float[Array, "T O"]:
    """Multiply each row of `x` by the transposed weight.

    One layout of the weight serves every number of rows, and lets the embedding
    double as the head without a second copy.

    Returns:
      The product in the dtype of `x`. float32 inputs are multiplied as float32:
      without saying so an NVIDIA GPU would round them to 10 bits of mantissa.
    """
    precision = lax.Precision.HIGHEST if x.dtype == jnp.float32 else None
    contract_last = (((1,), (1,)), ((), ()))
    return lax.dot_general(x, weight, contract_last, precision=precision)
