"""Which keys a query sees, and which chunks hold them, counted by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from kernels_pallas.paged_attention.xla_chunks import chunk_range, pad_tables, sees


@pytest.mark.parametrize(("blocks", "padded"), [(1, 4), (4, 4), (5, 8)])
def test_tables_become_whole_chunks_of_the_null_block(blocks, padded):
    got = np.asarray(pad_tables(jnp.ones((2, blocks), jnp.int32), 4))
    assert got.shape == (2, padded)
    assert got.sum() == 2 * blocks
    assert (got[:, :blocks] == 1).all()


@pytest.mark.parametrize("window", [None, 1, 3, 100])
def test_a_query_sees_what_lies_before_it_within_its_window(window):
    keys, queries = np.arange(10), np.array([0, 4, 9])
    got = sees(jnp.asarray(keys)[None], jnp.asarray(queries)[:, None], window)
    wanted = [
        [key <= query and (window is None or query - key < window) for key in keys]
        for query in queries
    ]
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("window", [None, 1, 7, 64, 500])
@pytest.mark.parametrize(("shortest", "longest"), [(1, 1), (64, 65), (70, 300)])
def test_chunks_are_those_that_hold_a_key_that_is_seen(shortest, longest, window):
    first, last = chunk_range(jnp.int32(shortest), jnp.int32(longest), 64, window)
    seen = {
        key // 64
        for length in range(shortest, longest + 1)
        for key in range(max(0, length - window) if window else 0, length)
    }
    assert seen == set(range(int(first), int(last)))
