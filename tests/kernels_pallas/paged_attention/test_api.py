"""Writes, options, and the ways to the paths."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels_pallas import paged_attention as package
from kernels_pallas.paged_attention import paged_attention, write_kv
from kernels_pallas.paged_attention.reference import reference_attention


def test_write_puts_tokens_in_their_slots_and_drops_padding():
    keys = values = jnp.zeros((3, 2, 4, 8), jnp.float32)
    new = jnp.arange(4 * 2 * 8, dtype=jnp.float32).reshape(4, 2, 8) + 1
    slots = jnp.asarray([5, 11, 12, 12], jnp.int32)  # 12 is past the end
    got_keys, got_values = write_kv(keys, values, new, -new, slots)
    want = np.zeros((3, 2, 4, 8), np.float32)
    want[1, :, 1], want[2, :, 3] = new[0], new[1]
    np.testing.assert_array_equal(np.asarray(got_keys), want)
    np.testing.assert_array_equal(np.asarray(got_values), -want)


def test_write_happens_in_place():
    step = jax.jit(write_kv, donate_argnums=(0, 1))
    cache = [jnp.zeros((64, 2, 16, 8), jnp.float32) for _ in range(2)]
    new = jnp.ones((4, 2, 8), jnp.float32)
    slots = jnp.arange(4, dtype=jnp.int32)
    pointers = [a.unsafe_buffer_pointer() for a in cache]
    for _ in range(3):
        cache = list(step(*cache, new, new, slots))
    assert [a.unsafe_buffer_pointer() for a in cache] == pointers


def test_options_that_do_not_fit_are_refused(paged):
    step = paged.make(paged.rows["one row"])
    with pytest.raises(ValueError, match="sliding_window is 0"):
        paged.run(paged_attention, step, scale=1.0, sliding_window=0)
    with pytest.raises(ValueError, match="10 queries for 4 rows"):
        paged.run(paged_attention, step, scale=1.0, single_token_rows=True)


def test_the_kernel_refuses_options_that_do_not_fit(paged):
    step, tiling = paged.make(paged.rows["one row"]), paged.tiles()
    with pytest.raises(ValueError, match="sliding_window is 0"):
        paged.attend(step, tiling, scale=1.0, sliding_window=0)
    with pytest.raises(ValueError, match=r"soft_cap is 0\.0"):
        paged.attend(step, tiling, scale=1.0, soft_cap=0.0)
    with pytest.raises(ValueError, match="10 queries for 4 rows"):
        paged.attend(step, tiling, scale=1.0, single_token_rows=True)


@pytest.mark.parametrize("window", [None, 5])
def test_it_computes_what_the_reference_defines(paged, window):
    step = paged.make(paged.rows["mixed"][:4], seed=1)
    options = {"scale": 0.3, "sliding_window": window}
    got = paged.run(paged_attention, step, **options)
    want = paged.run(reference_attention, step, **options)
    np.testing.assert_allclose(got, want, atol=2e-6)


def test_the_kernel_computes_what_the_reference_defines(paged):
    step = paged.make(
        paged.rows["mixed"][:4], dtype="bfloat16", cache_dtype="int8", sinks=True
    )
    options = {"scale": 0.3, "sliding_window": 50, "soft_cap": 4.0}
    got = paged.attend(step, paged.tiles(splits=2), **options)
    want = paged.run(reference_attention, step, **options)
    np.testing.assert_allclose(got, want.astype(np.float64), atol=3e-2)


def test_single_token_rows_is_only_a_promise(paged):
    step = paged.make([(3, 1), (0, 1), (20, 1)], num_rows=6, num_tokens=6)
    one, other = (
        paged.run(paged_attention, step, scale=0.3, single_token_rows=s)
        for s in (False, True)
    )
    np.testing.assert_allclose(one, other, atol=1e-6)
    assert np.abs(one).max() > 0.1


AFTER_THE_FIRST_JIT = """
import jax, jax.numpy as jnp
from kernels_pallas import paged_attention as package
double = jax.jit(lambda x: 2 * x)
double(jnp.ones(3))
cache, new = jnp.zeros((3, 2, 4, 8)), jnp.ones((2, 2, 8))
slots = jnp.asarray([1, 2], jnp.int32)
package.pallas_write_kv(cache, cache, new, new, slots, interpret=True)
double(jnp.ones(3))
assert double._cache_size() == 1, double._cache_size()
"""


def test_a_first_launch_leaves_compiled_programs_as_they_are():
    # An import of Pallas changes the key of what is compiled, so it must not be late.
    subprocess.run([sys.executable, "-c", AFTER_THE_FIRST_JIT], check=True)


def test_the_package_offers_these():
    assert package.__all__ == [
        "AttentionMetadata",
        "Tile",
        "Tiling",
        "XlaMetadata",
        "attention_metadata",
        "merge_states",
        "paged_attention",
        "pallas_attention",
        "pallas_write_kv",
        "tiling_for",
        "write_kv",
        "xla_metadata",
    ]
    assert all(hasattr(package, name) for name in package.__all__)
