"""The XLA path against dense attention in numpy, float64."""

import numpy as np
import pytest

from kernels_pallas.paged_attention.xla import xla_attention


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
