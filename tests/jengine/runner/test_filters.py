"""Top-k and top-p against brute force, by both of their ways."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from jengine.runner import filters

keep_top_k = jax.jit(filters.keep_top_k)
keep_top_p = jax.jit(filters.keep_top_p)
keep_best = jax.jit(filters.keep_best)
bisect = jax.jit(filters._bisect)


def _kept(weights, top_k=0, top_p=1.0):
    """Which ids brute force keeps, and their renormalised odds."""
    order = np.lexsort((np.arange(len(weights)), -weights))
    kept = np.zeros(len(weights), bool)
    kth = weights[order[top_k - 1]] if 0 < top_k < len(weights) else 0.0
    kept[weights >= kth] = True
    total, mass = weights[kept].sum(), 0.0
    for index in order:
        if not kept[index]:
            continue
        if mass >= top_p * total and top_p < 1:
            kept[index] = False
        mass += weights[index]
    odds = np.where(kept, weights, 0.0)
    return odds / odds.sum()


@settings(max_examples=60)
@given(
    weights=hnp.arrays(np.float64, 37, elements=st.floats(1e-6, 1.0)),
    top_k=st.integers(0, 40),
    top_p=st.floats(0.01, 1.0),
)
def test_filters_equal_brute_force(weights, top_k, top_p):
    weights = (weights / weights.max()).astype(np.float32)
    by_k = keep_top_k(jnp.asarray(weights[None]), jnp.asarray([top_k], jnp.int32))
    want_k = _kept(weights.astype(np.float64), top_k)
    np.testing.assert_array_equal(np.asarray(by_k)[0] > 0, want_k > 0)
    both = keep_top_p(by_k, jnp.asarray([top_p], jnp.float32))
    got = np.asarray(both)[0].astype(np.float64)
    # Where the mass ends within rounding of the limit either set is right.
    kept = np.sort(got[got > 0])
    total = np.asarray(by_k)[0].astype(np.float64).sum()
    assert got.sum() >= top_p * total - 1e-5 * total
    assert got.sum() - kept[0] < top_p * total + 1e-5 * total or top_p == 1
    assert kept[0] >= weights[(got == 0) & (want_k > 0)].max(initial=0.0)


def test_equal_weights_are_cut_by_id():
    weights = jnp.ones((1, 10), jnp.float32)
    kept = np.asarray(keep_top_p(weights, jnp.asarray([0.45], jnp.float32)))[0]
    assert kept.tolist() == [1.0] * 5 + [0.0] * 5
    ties = np.asarray(keep_top_k(weights, jnp.asarray([3], jnp.int32)))[0]
    assert ties.sum() == 10


ROWS, VOCAB = 6, 700  # more ids than are looked at first
# Exact in float32, so that both ways add up the same sums; many are equal.
EIGHTHS = st.integers(0, 8).map(lambda n: n / 8)


@settings(max_examples=40, deadline=None)
@given(
    kinds=st.lists(
        st.sampled_from(["few", "many", "equal"]), min_size=ROWS, max_size=ROWS
    ),
    seed=st.integers(0, 1000),
    top_k=st.lists(
        st.sampled_from([0, 0, 1, 2, 40, 512, 513, 699, 9999]),
        min_size=ROWS,
        max_size=ROWS,
    ),
    top_p=st.lists(
        st.sampled_from([1.0, 1.0, 0.01, 0.3, 0.9, 0.999]), min_size=ROWS, max_size=ROWS
    ),
)
def test_the_best_few_decide_as_bisection_does(kinds, seed, top_k, top_p):
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 9, size=(ROWS, VOCAB)).astype(np.float32) / 8
    for row, kind in enumerate(kinds):
        if kind == "few":
            weights[row, rng.permutation(VOCAB)[:-9]] = 0.0
        if kind == "equal":
            weights[row] = 1.0
    weights[:, 3] = 1.0
    options = (jnp.asarray(top_k, jnp.int32), jnp.asarray(top_p, jnp.float32))
    found = np.asarray(keep_best(jnp.asarray(weights), *options))
    np.testing.assert_array_equal(found, bisect(jnp.asarray(weights), *options))
    for row in range(ROWS):
        alone = [one[row : row + 1] for one in options]
        one = keep_best(jnp.asarray(weights[row : row + 1]), *alone)
        np.testing.assert_array_equal(np.asarray(one)[0], found[row])


@pytest.mark.parametrize(
    ("top_k", "top_p", "is_known"),
    [
        (0, 1.0, True),
        (40, 1.0, True),
        (511, 1.0, True),
        (512, 1.0, False),  # whether more ids equal the last is not seen
        (40, 0.9, True),
        (0, 0.5, True),
        (0, 0.99, False),
    ],
)
def test_most_rows_are_known_from_their_best_weights(top_k, top_p, is_known):
    weights = jnp.linspace(1.0, 0.0, VOCAB + 1)[None, :VOCAB]
    found = filters._find_cut(
        weights, jnp.asarray([top_k], jnp.int32), jnp.asarray([top_p], jnp.float32)
    )
    assert found.is_known.tolist() == [is_known]


@pytest.mark.parametrize("top_p", [1e-30, 1e-38, 1e-45, 0.0])
@pytest.mark.parametrize("filtered", [keep_best, bisect])
def test_the_best_weight_stays_however_small_the_share(filtered, top_p):
    weights = np.full((2, 2000), 1e-3, np.float32)
    weights[0, 7] = weights[1, [5, 9]] = 1.0
    asked = jnp.full(2, top_p, jnp.float32)
    for top_k in (0, 600):  # more than are looked at first
        kept = filtered(jnp.asarray(weights), jnp.full(2, top_k, jnp.int32), asked)
        assert [np.flatnonzero(row).tolist() for row in np.asarray(kept)] == [[7], [5]]
