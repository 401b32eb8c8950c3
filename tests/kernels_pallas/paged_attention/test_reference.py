"""The reference against dense attention in numpy, float64."""

import jax.numpy as jnp
import numpy as np
import pytest

from kernels_pallas.paged_attention.reference import reference_attention, row_of_tokens


def test_equals_dense_attention_and_never_reads_what_it_must_not(steps, ragged):
    case, rows, window = ragged
    options = {"scale": 0.3, "sliding_window": window}
    got = steps.run(reference_attention, case, **options)
    want = steps.oracle(case[0], rows, case[4], case[6], 0.3, window)
    np.testing.assert_allclose(np.asarray(got), want, atol=2e-6)


def test_a_value_that_is_nan_spoils_only_the_queries_that_see_it(
    check_nan_stays_where_it_is_seen,
):
    check_nan_stays_where_it_is_seen(reference_attention)


def test_the_result_has_the_dtype_of_the_queries(steps):
    case = steps.make(steps.rows["one row"])
    got = steps.run(
        lambda queries, *arrays, **options: reference_attention(
            queries.astype(jnp.bfloat16), *arrays, **options
        ),
        case,
        scale=0.3,
    )
    assert got.dtype == jnp.bfloat16
    want = steps.oracle(case[0], steps.rows["one row"], case[4], case[6], 0.3, None)
    np.testing.assert_allclose(np.asarray(got, np.float32), want, atol=0.05)


@pytest.mark.parametrize(
    ("starts", "num_tokens", "rows"),
    [
        ([0, 2, 3, 7], 7, [0, 0, 1, 2, 2, 2, 2]),
        ([0, 2, 3, 3, 3], 5, [0, 0, 1, 4, 4]),  # two padding rows, two padding tokens
        ([0, 0, 0], 2, [2, 2]),
        ([0, 1], 1, [0]),
    ],
)
def test_row_of_tokens(starts, num_tokens, rows):
    found = row_of_tokens(jnp.asarray(starts, jnp.int32), num_tokens)
    assert found.dtype == jnp.int32
    assert found.tolist() == rows
