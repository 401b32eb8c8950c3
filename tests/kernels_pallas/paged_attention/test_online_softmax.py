"""Softmax in pieces against softmax in one go, in numpy, float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_pallas.paged_attention import online_softmax
from kernels_pallas.paged_attention.online_softmax import SoftmaxState

QUERIES, KEYS, HEAD_DIM = 3, 12, 4


@jax.jit
def add(state, scores, sees, values):
    """Take in one piece, as its callers do."""
    maximum, factor, weights = online_softmax.rescale(state, scores, sees)
    return SoftmaxState(
        maximum,
        state.total * factor + jnp.sum(weights, axis=-1),
        state.values * factor[..., None] + weights @ values,
    )


def in_pieces(scores, sees, values, borders):
    state = online_softmax.start((scores.shape[0],), values.shape[1])
    for first, last in zip([0, *borders], [*borders, len(values)], strict=True):
        state = add(
            state,
            jnp.asarray(scores[:, first:last], jnp.float32),
            jnp.asarray(sees[:, first:last]),
            jnp.asarray(values[first:last], jnp.float32),
        )
    return np.asarray(jax.jit(online_softmax.finish)(state))


def whole(scores, sees, values):
    out = np.zeros((scores.shape[0], values.shape[1]))
    for query, (row, seen) in enumerate(zip(scores, sees, strict=True)):
        if seen.any():
            weights = np.exp(row[seen] - row[seen].max())
            out[query] = weights @ values[seen] / weights.sum()
    return out


@given(
    seed=st.integers(0, 1000),
    borders=st.sets(st.sampled_from([3, 6, 9])).map(sorted),  # few shapes to compile
    density=st.sampled_from([0.0, 0.2, 0.7, 1.0]),
    spread=st.sampled_from([0.1, 5.0, 80.0]),
)
def test_pieces_give_what_the_whole_gives(seed, borders, density, spread):
    rng = np.random.default_rng(seed)
    scores = spread * rng.normal(size=(QUERIES, KEYS)).astype(np.float32)
    values = rng.normal(size=(KEYS, HEAD_DIM))
    sees = rng.random((QUERIES, KEYS)) < density
    got = in_pieces(scores, sees, values, borders)
    want = whole(scores.astype(np.float64), sees, values)
    np.testing.assert_allclose(got, want, atol=1e-5)


def test_queries_that_see_nothing_get_zeros():
    scores = np.full((2, KEYS), 1e30)
    sees = np.zeros((2, KEYS), bool)
    sees[1, 5] = True
    values = np.arange(KEYS * HEAD_DIM, dtype=np.float64).reshape(KEYS, HEAD_DIM)
    got = in_pieces(scores, sees, values, [4, 8])
    assert not got[0].any()
    np.testing.assert_array_equal(got[1], values[5])


@pytest.mark.parametrize("hidden", [np.nan, np.inf, -np.inf])
def test_scores_that_are_not_seen_may_be_anything(hidden):
    scores = np.array([[1.0, hidden, 2.0, hidden]])
    sees = np.array([[True, False, True, False]])
    values = np.eye(4)
    for borders in ([], [1], [1, 2, 3]):
        got = in_pieces(scores, sees, values, borders)
        np.testing.assert_allclose(got, whole(scores, sees, values), atol=1e-6)


@pytest.mark.parametrize("borders", [[], [1], [1, 2, 3]])
def test_a_seen_score_that_is_no_number_shows(borders):
    scores = np.array([[1.0, np.nan, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0]])
    got = in_pieces(scores, np.ones((2, 4), bool), np.eye(4), borders)
    assert np.isnan(got[0]).all()
    assert np.isfinite(got[1]).all()


def test_a_start_has_seen_nothing():
    state = online_softmax.start((2, 3), 4)
    assert [leaf.shape for leaf in state] == [(2, 3), (2, 3), (2, 3, 4)]
    assert {leaf.dtype for leaf in state} == {jnp.dtype("float32")}
    assert not np.asarray(online_softmax.finish(state)).any()


def test_the_largest_scores_do_not_overflow():
    scores = np.array([[3e38, 3e38, -3e38]])
    got = in_pieces(scores, np.ones((1, 3), bool), np.eye(3), [1, 2])
    np.testing.assert_allclose(got, [[0.5, 0.5, 0.0]], atol=1e-6)
