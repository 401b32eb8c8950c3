"""Rotary position embedding: frequencies, angles of a step, rotation of heads.

The frequencies depend on the configuration only and are computed with numpy while
tracing; cosines and sines depend on the positions and are computed once a step.
"""

import math
import typing

import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float, Int

from models.rope_config import RopeConfig

FloatArray = np.ndarray


@struct.dataclass
@typing.no_type_check  # leaves may be tracers or shapes
class Rotation:
    """Factors of the step's tokens, in float32, for both features of each pair.

    Attributes:
      cos: cosine of the pair's angle.
      sin: its sine, negative for the first feature of the pair.
    """

    cos: Float[Array, "T D"]
    sin: Float[Array, "T D"]


def rotation(rope: RopeConfig, head_dim: int, positions: Int[Array, " T"]) -> Rotation:
    """Compute the rotation of each token.

    The angles need float32: at position 100,000 bfloat16 knows a position to 512
    only, and an angle of the fastest frequency is the position itself.

    Args:
      rope: the model's rotary settings.
      head_dim: features of one head.
      positions: index of each token in its own sequence, from 0.
    """
    frequencies = jnp.asarray(inverse_frequencies(rope, head_dim), jnp.float32)
    angles = positions[:, None].astype(jnp.float32) * frequencies[None, :]  # [T, D/2]
    cos = jnp.cos(angles) * rope.attention_factor
    sin = jnp.sin(angles) * rope.attention_factor
    return Rotation(
        cos=jnp.concatenate([cos, cos], axis=-1),
        sin=jnp.concatenate([-sin, sin], axis=-1),
    )


def rotate(x: Float[Array, "T H D"], turn: Rotation) -> Float[Array, "T H D"]:
    """Rotate query or key heads by their token's angles.

    Pairs feature i with feature i + D/2, the layout of Hugging Face checkpoints.

    Returns:
      The rotated heads, in the dtype of `x`.

    Source: Su et al. 2021, arXiv:2104.09864, section 3.4.2.
    """
    wide = x.astype(jnp.float32)
    # A roll, because to put two halves together costs XLA:CPU four times as much.
    other = jnp.roll(wide, x.shape[-1] // 2, axis=-1)
    rotated = wide * turn.cos[:, None, :] + other * turn.sin[:, None, :]
    return rotated.astype(x.dtype)


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> FloatArray:
    """Return the angle per position of each pair of features, float32 `[D/2]`.

    `dynamic` gives the plain frequencies, which is right up to
    `max_position_embeddings`: past it they would depend on the length of the
    sequence, so that cached keys would have to be rotated again.
    """
    plain = _plain_frequencies(rope.theta, head_dim)
    match rope.rope_type:
        case "linear":
            return plain / np.float32(rope.factor)
        case "llama3":
            return _llama3_frequencies(rope, plain)
        case "yarn":
            return _yarn_frequencies(rope, plain)
        case "frequency_factors":
            return plain / np.asarray(rope.frequency_factors, np.float32)
    return plain


def _plain_frequencies(theta: float, head_dim: int) -> FloatArray:
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    return np.float32(1) / np.power(np.float32(theta), exponents)


def _llama3_frequencies(rope: RopeConfig, plain: FloatArray) -> FloatArray:
    """Slow the low frequencies down, keep the high ones, blend between.

    Source: Llama 3.1 reference code, `apply_scaling`; original context length,
    factors for low and high as in the checkpoint's config.
    """
    turns = rope.original_max_position_embeddings * plain / np.float32(2 * math.pi)
    low, high = rope.low_freq_factor, rope.high_freq_factor
    keep = np.clip((turns - low) / (high - low), 0, 1)
    blended = (1 - keep) * plain / rope.factor + keep * plain
    return blended.astype(np.float32)


def _yarn_frequencies(rope: RopeConfig, plain: FloatArray) -> FloatArray:
    """Interpolate what turns slowly, keep what turns fast, ramp between.

    Source: Peng et al. 2023, arXiv:2309.00071, section 3.2.
    """
    pairs = plain.shape[0]
    low = _yarn_pair(rope, rope.beta_fast, pairs)
    high = _yarn_pair(rope, rope.beta_slow, pairs)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, 2 * pairs - 1)
    width = high - low if high != low else 0.001  # a step, without dividing by zero
    ramp = np.clip((np.arange(pairs, dtype=np.float32) - low) / width, 0, 1)
    blended = plain / rope.factor * ramp + plain * (1 - ramp)
    return blended.astype(np.float32)


def _yarn_pair(rope: RopeConfig, turns: float, pairs: int) -> float:
    """Return the (fractional) pair that turns so often in the original context."""
    wavelength = rope.original_max_position_embeddings / (turns * 2 * math.pi)
    return pairs * math.log(wavelength) / math.log(rope.theta)
