"""Top-k and top-p on weights: exact, and without a sort of the vocabulary.

Two ways to the same result. Bisection over the bits of floats finds a threshold in
thirty passes; it suits a GPU, and any filter. On a CPU, where XLA runs what a loop
repeats on one core, most rows are decided by their best few hundred weights instead.
Which way a row takes depends on the row alone, never on its neighbours.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

_BEST = 512  # weights of a row that are looked at first, on a CPU


def keep_best(
    weights: Float[Array, "R V"], top_k: Int[Array, " R"], top_p: Float[Array, " R"]
) -> Float[Array, "R V"]:
    """Zero what top-k drops, then what top-p drops of the rest.

    Args:
      weights: values in [0, 1], the best of each row being 1.
      top_k: how many to keep; 0 keeps all.
      top_p: share of their sum to keep; 1 keeps all.
    """
    return jax.lax.platform_dependent(
        weights, top_k, top_p, cpu=_keep_best_of_few, default=_bisect
    )


class _Cut(NamedTuple):
    """Where a row is cut: above `weight`, and at it up to `token_id`.

    Attributes:
      weight: the least that is kept.
      token_id: the last id of this weight that is kept.
      is_known: whether the best weights were enough to tell.
    """

    weight: Float[Array, " R"]
    token_id: Int[Array, " R"]
    is_known: Bool[Array, " R"]


def _keep_best_of_few(
    weights: Float[Array, "R V"], top_k: Int[Array, " R"], top_p: Float[Array, " R"]
) -> Float[Array, "R V"]:
    cut = _find_cut(weights, top_k, top_p)
    ids = lax.broadcasted_iota(jnp.int32, weights.shape, 1)
    edge = cut.weight[:, None]
    kept = (weights > edge) | ((weights == edge) & (ids <= cut.token_id[:, None]))
    # In a branch that is rarely taken, for it runs on one core.
    others = lax.cond(
        jnp.all(cut.is_known), lambda w, *_: w, _bisect, weights, top_k, top_p
    )
    known = jnp.where(kept, weights, 0.0)
    return jnp.where(cut.is_known[:, None], known, others)


def _find_cut(
    weights: Float[Array, "R V"], top_k: Int[Array, " R"], top_p: Float[Array, " R"]
) -> _Cut:
    """Find where each row is cut, from its best weights alone if they tell."""
    vocab_size = weights.shape[1]
    most = min(_BEST, vocab_size)
    # Without the barrier XLA joins later slices with those inside of top_k, does not
    # know it any more, and sorts the vocabulary, in fifty times the time.
    best, ids = lax.optimization_barrier(lax.top_k(weights, most))
    rank = lax.broadcasted_iota(jnp.int32, best.shape, 1)  # equal ones by their ids
    last = jnp.minimum(jnp.where(top_k > 0, top_k, most), most) - 1
    smallest = jnp.take_along_axis(best, last[:, None], axis=1)
    # Nothing but zeros is left: the filter drops none that could be drawn.
    few = smallest[:, 0] == 0
    has_all_ties = (best[:, -1] < smallest[:, 0]) | few | (most == vocab_size)
    of_top_k = best >= smallest  # the k best, and what equals the last of them
    asks_k = top_k > 0
    total = jnp.where(
        asks_k,
        jnp.sum(jnp.where(of_top_k, best, 0.0), axis=1),
        jnp.sum(weights, axis=1),
    )
    before = jnp.cumsum(best, axis=1) - best
    kept = of_top_k & ((before < (top_p * total)[:, None]) | (top_p >= 1)[:, None])
    kept |= rank == 0
    end = jnp.sum(kept, axis=1, dtype=jnp.int32) - 1
    knows_k = ~asks_k | ((top_k <= most) & has_all_ties)
    knows_p = (top_p >= 1) | (end < most - 1) | asks_k
    keeps_all = ~asks_k & (top_p >= 1)
    edge = jnp.take_along_axis(best, end[:, None], axis=1)[:, 0]
    token_id = jnp.take_along_axis(ids, end[:, None], axis=1)[:, 0]
    return _Cut(
        jnp.where(keeps_all, -1.0, edge), token_id, keeps_all | (knows_k & knows_p)
    )


def _bisect(
    weights: Float[Array, "R V"], top_k: Int[Array, " R"], top_p: Float[Array, " R"]
) -> Float[Array, "R V"]:
    # The program that does everything also runs where no row asks for this.
    asked = jnp.any((top_k > 0) | (top_p < 1))
    return lax.cond(
        asked,
        lambda w, k, p: keep_top_p(keep_top_k(w, k), p),
        lambda w, *_: w,
        weights,
        top_k,
        top_p,
    )


def keep_top_k(
    weights: Float[Array, "R V"], top_k: Int[Array, " R"]
) -> Float[Array, "R V"]:
    """Zero all but the k largest weights; those equal to the k-th stay too.

    Args:
      weights: values in [0, 1].
      top_k: how many to keep; 0 keeps all.
    """
    wanted = jnp.where(top_k > 0, top_k, weights.shape[1])
    bits = _ordered_bits(weights)

    def holds(threshold: Int[Array, " R"]) -> Bool[Array, " R"]:
        count = jnp.sum(bits >= threshold[:, None], axis=1, dtype=jnp.int32)
        return count >= wanted

    threshold = _largest_where(holds, weights.shape[0])
    return jnp.where(bits >= threshold[:, None], weights, 0.0)


def keep_top_p(
    weights: Float[Array, "R V"], top_p: Float[Array, " R"]
) -> Float[Array, "R V"]:
    """Zero all but the fewest largest weights that reach a share of the sum.

    Among weights equal to the smallest one kept, lower ids come first. At least
    one stays.
    """
    bits = _ordered_bits(weights)
    # A tiny share may round to zero, which nothing would be enough for.
    smallest = np.finfo(np.float32).tiny
    needed = jnp.maximum(top_p * jnp.sum(weights, axis=1), smallest)

    def mass_from(threshold: Int[Array, " R"]) -> Float[Array, " R"]:
        return jnp.sum(jnp.where(bits >= threshold[:, None], weights, 0.0), axis=1)

    threshold = _largest_where(lambda t: mass_from(t) >= needed, weights.shape[0])
    tied = bits == threshold[:, None]
    value = lax.bitcast_convert_type(threshold, jnp.float32)
    before = jnp.cumsum(tied, axis=1, dtype=jnp.float32) - 1.0  # ties of lower ids
    mass = mass_from(threshold + 1)[:, None] + before * value[:, None]
    kept = (bits > threshold[:, None]) | (tied & (mass < needed[:, None]))
    # With the whole sum asked for, rounding must not drop anything.
    return jnp.where(kept | (top_p >= 1)[:, None], weights, 0.0)


def _ordered_bits(weights: Float[Array, "R V"]) -> Int[Array, "R V"]:
    """Bits of floats that are not negative: integers in the same order."""
    return lax.bitcast_convert_type(weights, jnp.int32)


def _largest_where(holds, num_rows: int) -> Int[Array, " R"]:
    """Largest threshold for which `holds` is true, by bisection over float bits.

    `holds` is true for 0 and never true above a threshold for which it is false.
    Thirty halvings decide exactly among all floats up to 1.
    """
    one = jnp.full(num_rows, 0x3F800000, jnp.int32)

    def halve(_, bounds):
        low, high = bounds  # holds(low), not holds(high)
        middle = low + lax.div(high - low, np.int32(2))
        good = holds(middle)
        return jnp.where(good, middle, low), jnp.where(good, high, middle)

    low, _ = lax.fori_loop(0, 30, halve, (jnp.zeros_like(one), one + 1))
    return low
