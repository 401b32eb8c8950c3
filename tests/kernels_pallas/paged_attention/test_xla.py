"""The XLA path against dense attention in numpy, float64."""

import jax.numpy as jnp
import numpy as np
import pytest

from kernels_pallas.paged_attention.xla import xla_attention, xla_metadata


def sort_rows(step):
    starts, lens = step.arrays["query_start_loc"], step.arrays["seq_lens"]
    return xla_metadata(jnp.asarray(starts), jnp.asarray(lens))


def check(paged, step, *, scale=0.3, window=None, single=False):
    options = {"scale": scale, "sliding_window": window}
    got = paged.run(xla_attention, step, single_token_rows=single, **options)
    np.testing.assert_allclose(got, paged.expected(step, **options), atol=2e-6)


def test_equals_dense_attention_and_never_reads_what_it_must_not(paged, ragged):
    step, window = ragged
    check(paged, step, window=window)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "block_size"),
    [(1, 1, 8, 8), (9, 3, 64, 16), (7, 1, 24, 32), (8, 8, 16, 128), (4, 2, 16, 5)],
)
def test_head_groups_and_block_sizes(paged, heads, kv_heads, head_dim, block_size):
    sizes = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
    step = paged.make(paged.rows["mixed"], block_size=block_size, **sizes)
    check(paged, step, scale=0.2)


@pytest.mark.parametrize(
    ("num_rows", "window"),
    [(1, None), (31, None), (32, None), (33, None), (33, 7), (70, None)],
)
def test_single_token_rows(paged, num_rows, window):
    rows = [(i * 5, 1) for i in range(num_rows)]
    step = paged.make(rows, num_tokens=num_rows + 3)
    check(paged, step, window=window, single=True)


def test_a_value_that_is_nan_spoils_only_the_queries_that_see_it(
    check_nan_stays_where_it_is_seen,
):
    check_nan_stays_where_it_is_seen(xla_attention)


def test_rows_are_sorted_by_length_and_find_back_to_their_places(paged):
    step = paged.make(paged.rows["mixed"])
    metadata = sort_rows(step)
    assert int(metadata.num_single) == 2
    assert list(metadata.order[:2]) == [1, 0]  # 201 tokens before 8
    order, places = np.asarray(metadata.order), np.asarray(metadata.places)
    np.testing.assert_array_equal(order[places], np.arange(len(order)))


@pytest.mark.parametrize("name", ["mixed", "many decodes"])
def test_metadata_may_be_made_once_for_all_layers(paged, name):
    step = paged.make(paged.rows[name])
    metadata = sort_rows(step)
    got = paged.run(xla_attention, step, scale=0.3, metadata=metadata)
    np.testing.assert_allclose(got, paged.expected(step, scale=0.3), atol=2e-6)
