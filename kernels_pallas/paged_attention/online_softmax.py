"""Softmax over keys that arrive in pieces, in float32."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class SoftmaxState(NamedTuple):
    """Running maximum, sum of exponentials and weighted values of some queries.

    The leading axes are the caller's; the last axis of `values` is the head dim.
    """

    maximum: Float[Array, "*Q"]
    total: Float[Array, "*Q"]
    values: Float[Array, "*Q D"]


def start(shape: tuple[int, ...], head_dim: int) -> SoftmaxState:
    """Return the state of queries that have seen no key."""
    return SoftmaxState(
        jnp.full(shape, -jnp.inf, jnp.float32),
        jnp.zeros(shape, jnp.float32),
        jnp.zeros((*shape, head_dim), jnp.float32),
    )


def rescale(
    state: SoftmaxState, scores: Float[Array, "*Q S"], sees: Bool[Array, "*#Q S"]
) -> tuple[Float[Array, "*Q"], Float[Array, "*Q"], Float[Array, "*Q S"]]:
    """Return the new maximum, the factor on old sums, and the new weights.

    A query that has seen nothing yet has a maximum of minus infinity; its
    exponent is taken from 0 instead, since -inf minus -inf is no number.
    """
    scores = jnp.where(sees, scores, -jnp.inf)
    maximum = jnp.maximum(state.maximum, jnp.max(scores, axis=-1))
    finite = jnp.where(jnp.isneginf(maximum), 0.0, maximum)
    factor = jnp.exp(state.maximum - finite)
    return maximum, factor, jnp.exp(scores - finite[..., None])


def finish(state: SoftmaxState) -> Float[Array, "*Q D"]:
    """Return the attended values; zeros where no key was seen."""
    total = jnp.where(state.total > 0, state.total, 1.0)
    # A total that is not a number must stay visible in the result.
    total = jnp.where(jnp.isnan(state.total), state.total, total)
    return state.values / total[..., None]
