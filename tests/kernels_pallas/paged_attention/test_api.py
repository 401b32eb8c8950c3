"""Writes, checks of shapes, and the way to the path."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels_pallas import paged_attention as package
from kernels_pallas.paged_attention import paged_attention, write_kv
from kernels_pallas.paged_attention.api import check_shapes
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queries": np.zeros((5, 3, 16))}, "3 query heads"),
        ({"queries": np.zeros((5, 4, 8))}, "head dims are 8 and 16"),
        ({"values": np.zeros((9, 2, 16, 8))}, "keys are"),
        ({"seq_lens": np.zeros(2)}, "seq_lens has 2 rows"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(steps, change, message):
    names = ["queries", "keys", "values", "block_tables", "query_start_loc", "seq_lens"]
    arrays = dict(zip(names, steps.make(steps.rows["one row"])[:6], strict=True))
    arrays |= change
    kinds = [jnp.float32] * 3 + [jnp.int32] * 3
    args = [jnp.asarray(arrays[n], k) for n, k in zip(names, kinds, strict=True)]
    with pytest.raises(ValueError, match=message):
        check_shapes(*args)


def test_options_that_do_not_fit_are_refused(steps):
    case = steps.make(steps.rows["one row"])
    with pytest.raises(ValueError, match="sliding_window is 0"):
        steps.run(paged_attention, case, scale=1.0, sliding_window=0)
    with pytest.raises(ValueError, match="10 queries for 4 rows"):
        steps.run(paged_attention, case, scale=1.0, single_token_rows=True)


@pytest.mark.parametrize("window", [None, 5])
def test_it_computes_what_the_reference_defines(steps, window):
    rows = steps.rows["mixed"][:4]
    case = steps.make(rows, seed=1)
    options = {"scale": 0.3, "sliding_window": window}
    got = np.asarray(steps.run(paged_attention, case, **options))
    want = np.asarray(steps.run(reference_attention, case, **options))
    np.testing.assert_allclose(got, want, atol=2e-6)


def test_single_token_rows_is_only_a_promise(steps):
    rows = [(3, 1), (0, 1), (20, 1)]
    queries, *others = steps.make(rows)
    case = (queries[: len(others[4])], *others)
    one, other = (
        np.asarray(steps.run(paged_attention, case, scale=0.3, single_token_rows=s))
        for s in (False, True)
    )
    np.testing.assert_allclose(one, other, atol=1e-6)
    assert np.abs(one).max() > 0.1


def test_the_package_offers_both():
    assert package.__all__ == ["paged_attention", "write_kv"]
