"""The write in one launch against a write token by token, in numpy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels_pallas.paged_attention import pallas_write_kv
from kernels_pallas.paged_attention.write import warps_for

write = functools.partial(pallas_write_kv, interpret=True)
BLOCKS, BLOCK_SIZE = 5, 8
PAST = BLOCKS * BLOCK_SIZE


def case(heads, head_dim, slots, *, dtype=jnp.float32, cache_dtype=None, seed=0):
    rng = np.random.default_rng(seed)
    cache = rng.normal(size=(2, BLOCKS, heads, BLOCK_SIZE, head_dim))
    new = rng.normal(size=(2, len(slots), heads, head_dim))
    return (
        *jnp.asarray(cache, cache_dtype or dtype),
        *jnp.asarray(new, dtype),
        jnp.asarray(slots, jnp.int32),
    )


def written(cache, new, slots):
    out = np.array(cache)
    for token, slot in zip(np.asarray(new.astype(cache.dtype)), slots, strict=True):
        if 0 <= slot < PAST:
            out[slot // BLOCK_SIZE, :, slot % BLOCK_SIZE] = token
    return out


@pytest.mark.parametrize(
    ("heads", "head_dim", "slots"),
    [
        (2, 16, [0, 39, 7, 8, 20]),
        (8, 128, [17]),
        (3, 16, [3, PAST, 11, PAST]),
        (2, 80, [39, PAST, PAST + 1000]),
        (1, 24, [38, 39, 2**30]),
        (2, 16, [PAST] * 4),
        (2, 16, [5, -1, -40]),
    ],
)
def test_tokens_go_to_their_slots_and_padding_nowhere(heads, head_dim, slots):
    arrays = case(heads, head_dim, slots)
    for got, cache, new in zip(write(*arrays), arrays[:2], arrays[2:4], strict=True):
        np.testing.assert_array_equal(got, written(cache, new, slots))


@pytest.mark.parametrize(
    ("dtype", "cache_dtype"),
    [
        (jnp.bfloat16, jnp.bfloat16),
        (jnp.bfloat16, jnp.float32),
        (jnp.float32, jnp.float16),
        (jnp.float32, jnp.float8_e4m3fn),
    ],
)
def test_tokens_take_the_dtype_of_the_cache(dtype, cache_dtype):
    arrays = case(2, 16, [9, 30], dtype=dtype, cache_dtype=cache_dtype)
    got, _ = write(*arrays)
    assert got.dtype == cache_dtype
    np.testing.assert_array_equal(got, written(arrays[0], arrays[2], [9, 30]))


def test_it_is_one_launch_that_updates_in_place():
    arrays = case(2, 16, [1, 2])
    traced = jax.make_jaxpr(write)(*arrays)
    (call,) = traced.eqns[0].params["jaxpr"].eqns
    assert call.primitive.name == "pallas_call"
    aliases = {
        (call.invars[i].aval.shape, o) for i, o in call.params["input_output_aliases"]
    }
    assert aliases == {(arrays[0].shape, 0), (arrays[1].shape, 1)}


@pytest.mark.parametrize(
    ("heads", "head_dim", "itemsize", "warps"),
    [(8, 128, 2, 4), (1, 64, 2, 1), (32, 128, 4, 8), (6, 96, 2, 4)],
)
def test_a_thread_moves_16_bytes_if_there_are_so_many(heads, head_dim, itemsize, warps):
    assert warps_for(heads, head_dim, itemsize) == warps
