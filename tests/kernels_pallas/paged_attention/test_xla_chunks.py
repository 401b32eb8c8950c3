"""Which keys a query sees, and which chunks hold them, counted by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from kernels_pallas.paged_attention.xla_chunks import (
    chunk_range,
    find_head_blocks,
    gather_tokens,
    sees,
)


@pytest.mark.parametrize(("blocks", "padded"), [(1, 4), (4, 4), (5, 8)])
def test_tables_become_whole_chunks_of_the_null_block(blocks, padded):
    cache = jnp.zeros((3, 2, 4, 8))
    got = np.asarray(find_head_blocks(jnp.full((2, blocks), 2, jnp.int32), cache, 4))
    assert got.shape == (2, 2, padded)
    for head in (0, 1):
        np.testing.assert_array_equal(got[:, head, :blocks], 2 * 2 + head)
        np.testing.assert_array_equal(got[:, head, blocks:], head)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_tokens_of_each_head_are_gathered_in_the_order_of_the_table(dtype):
    rng = np.random.default_rng(0)
    cache = jnp.asarray(rng.standard_normal((7, 3, 4, 8)), dtype)
    tables = rng.integers(0, 7, (5, 4)).astype(np.int32)
    head_blocks = find_head_blocks(jnp.asarray(tables), cache, 2)
    got = gather_tokens(cache, head_blocks)
    assert got.dtype == jnp.float32
    by_hand = np.asarray(cache.astype(jnp.float32))[tables]  # [R, P, K, B, D]
    wanted = by_hand.transpose(0, 2, 1, 3, 4).reshape(5, 3, 16, 8)
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(gather_tokens(cache, head_blocks[1]), wanted[1])


def test_ids_outside_the_pool_stay_inside():
    cache = jnp.zeros((3, 2, 4, 8))
    got = find_head_blocks(jnp.asarray([[-5, 99]], jnp.int32), cache, 2)
    np.testing.assert_array_equal(got, [[[0, 4], [1, 5]]])


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
