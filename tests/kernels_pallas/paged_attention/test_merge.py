"""Merging parts against one softmax over all keys, in numpy, float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_pallas.paged_attention import merge_states
from kernels_pallas.paged_attention.merge import merge_splits

PARTS, QUERIES, KEYS, HEAD_DIM = 3, 4, 9, 5


def attention(scores, values):
    """What was attended and the logarithm of the sum, of each query."""
    outputs = np.full((len(scores), values.shape[1]), np.nan)
    log_sums = np.full(len(scores), -np.inf)
    for query, row in enumerate(scores):
        if np.isfinite(row).any():
            weights = np.exp(row - row.max())
            outputs[query] = weights @ values / weights.sum()
            log_sums[query] = np.log(weights.sum()) + row.max()
    return outputs, log_sums


def parts_of(scores, values, owner):
    """The states of each part: keys belong to the part that owns them."""
    states = [
        attention(np.where(owner == part, scores, -np.inf), values)
        for part in range(PARTS)
    ]
    return [jnp.asarray(np.stack(a), jnp.float32) for a in zip(*states, strict=True)]


merge = jax.jit(merge_states)


@given(
    seed=st.integers(0, 1000),
    owner=st.lists(st.integers(0, PARTS - 1), min_size=KEYS, max_size=KEYS),
    shift=st.sampled_from([0.0, 90.0, -300.0]),
)
def test_parts_give_what_the_whole_gives(seed, owner, shift):
    rng = np.random.default_rng(seed)
    scores = 5 * rng.normal(size=(QUERIES, KEYS)) + shift
    values = rng.normal(size=(KEYS, HEAD_DIM))
    merged, log_sum = merge(*parts_of(scores, values, np.array(owner)))
    outputs, total = attention(scores, values)
    # float32 holds a logarithm of 300 to 3e-5.
    np.testing.assert_allclose(merged, outputs, atol=3e-4)
    np.testing.assert_allclose(log_sum, total, atol=3e-4)


def test_parts_without_a_key_count_for_nothing():
    outputs = jnp.asarray([[jnp.nan, jnp.nan], [3.0, 4.0]])
    merged, log_sum = merge(outputs, jnp.asarray([-jnp.inf, 2.0]))
    assert merged.tolist() == [3.0, 4.0]
    assert log_sum == 2.0


def test_without_any_key_there_are_zeros():
    merged, log_sum = merge(jnp.full((2, 3), jnp.nan), jnp.full((2,), -jnp.inf))
    assert merged.tolist() == [0.0, 0.0, 0.0]
    assert log_sum == -jnp.inf


def test_merging_twice_is_merging_all():
    rng = np.random.default_rng(0)
    outputs = jnp.asarray(rng.normal(size=(3, 2, 4)), jnp.float32)
    log_sums = jnp.asarray(rng.normal(size=(3, 2)), jnp.float32)
    first = merge(outputs[:2], log_sums[:2])
    pair = [jnp.stack(p) for p in zip(first, (outputs[2], log_sums[2]), strict=True)]
    for got, want in zip(merge(*pair), merge(outputs, log_sums), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-6)


def test_a_part_that_is_no_number_shows():
    merged, _ = merge(jnp.ones((2, 3)), jnp.asarray([0.0, jnp.nan]))
    assert np.isnan(merged).all()


def test_the_result_is_float32():
    merged, log_sum = merge(jnp.ones((2, 3), jnp.bfloat16), jnp.zeros((2,)))
    assert (merged.dtype, log_sum.dtype) == (jnp.float32, jnp.float32)


@pytest.mark.parametrize("single_token_rows", [True, False])
def test_the_launch_merges_rows_of_one_query_into_their_places(single_token_rows):
    rng = np.random.default_rng(1)
    splits, rows, heads, head_dim = 4, 3, 2, 6
    outputs = jnp.asarray(rng.normal(size=(splits, rows, heads, head_dim)), jnp.float32)
    log_sums = jnp.asarray(rng.normal(size=(splits, rows, heads)), jnp.float32)
    starts = [0, 1, 2, 3] if single_token_rows else [0, 1, 6, 7]
    got = merge_splits(
        outputs,
        log_sums,
        jnp.asarray(starts, jnp.int32),
        jax.ShapeDtypeStruct((starts[-1], heads, head_dim), jnp.bfloat16),
        single_token_rows=single_token_rows,
        interpret=True,
    )
    want = merge(outputs, log_sums)[0].astype(jnp.bfloat16)
    done = [0, 1, 2] if single_token_rows else [0, 2]
    assert got.dtype == jnp.bfloat16
    for row in done:
        np.testing.assert_array_equal(got[starts[row]], want[row])
