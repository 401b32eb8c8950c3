"""Root mean square norm."""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float


class RMSNorm(nnx.Module):
    """Divide by the root mean square of the last axis, then scale each feature."""

    def __init__(self, size: int, *, eps: float, dtype: jnp.dtype):
        self.scale = nnx.Param(jnp.zeros((size,), dtype))
        self.eps = eps

    def __call__(self, x: Float[Array, "*T M"]) -> Float[Array, "*T M"]:
        """Normalise each vector."""
        return rms_norm(x, self.scale[...], eps=self.eps)


def rms_norm(
    x: Float[Array, "*T M"], scale: Float[Array, " M"], *, eps: float
) -> Float[Array, "*T M"]:
    """Normalise in float32, then scale in the dtype of `x`.

    The sum of squares needs float32: in bfloat16 it would keep 8 bits. The order,
    round first and scale after, is that of the reference implementations.

    Source: Zhang and Sennrich 2019, arXiv:1910.07467, equation 4.
    """
    wide = x.astype(jnp.float32)
    mean_square = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
    normed = (wide * jax.lax.rsqrt(mean_square + eps)).astype(x.dtype)
    return normed * scale.reshape((1,) * (x.ndim - 1) + scale.shape)
