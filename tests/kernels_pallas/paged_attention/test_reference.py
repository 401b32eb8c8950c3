"""The reference against dense attention in numpy, float64."""

import jax.numpy as jnp
import numpy as np
import pytest

from kernels_pallas.paged_attention.reference import reference_attention, row_of_tokens


def test_equals_dense_attention_and_never_reads_what_it_must_not(paged, ragged):
    step, window = ragged
    options = {"scale": 0.3, "sliding_window": window}
    got = paged.run(reference_attention, step, **options)
    np.testing.assert_allclose(got, paged.expected(step, **options), atol=2e-6)


@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ({"spread": 8.0}, {"soft_cap": 5.0}),
        ({"sinks": True}, {}),
        ({"cache_dtype": "int8"}, {}),
        ({"cache_dtype": "float8_e4m3fn"}, {}),
        (
            {"sinks": True, "cache_dtype": "float8_e5m2", "heads": 6},
            {"soft_cap": 2.0, "sliding_window": 20},
        ),
    ],
)
def test_caps_sinks_and_scales_mean_what_they_should(paged, sizes, options):
    step = paged.make(paged.rows["mixed"], **sizes)
    options = {"scale": 0.3} | options
    got = paged.run(reference_attention, step, **options)
    np.testing.assert_allclose(got, paged.expected(step, **options), atol=3e-6)


def test_a_value_that_is_nan_spoils_only_the_queries_that_see_it(
    check_nan_stays_where_it_is_seen,
):
    check_nan_stays_where_it_is_seen(reference_attention)


def test_the_result_has_the_dtype_of_the_queries(paged):
    step = paged.make(paged.rows["one row"], dtype="bfloat16")
    got = paged.run(reference_attention, step, scale=0.3)
    assert got.dtype == jnp.bfloat16
    want = paged.expected(step, scale=0.3)
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
