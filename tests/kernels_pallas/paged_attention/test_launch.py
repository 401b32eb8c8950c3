"""Both launches on one buffer, for any ragged step."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_pallas.paged_attention import pallas_attention
from kernels_pallas.paged_attention.metadata import attention_metadata

NUM_TOKENS, NUM_ROWS, NUM_BLOCKS, BLOCK_SIZE = 64, 6, 40, 16
SIZES = {"num_tokens": NUM_TOKENS, "num_rows": NUM_ROWS, "num_blocks": NUM_BLOCKS}
SCALE = {"scale": 0.25}


@st.composite
def ragged_rows(draw):
    """(before, now) of each row; rows, tokens and blocks never more than there are."""
    rows, tokens, blocks = [], NUM_TOKENS, NUM_BLOCKS - 2
    for _ in range(draw(st.integers(1, NUM_ROWS))):
        now = min(draw(st.sampled_from([0, 1, 1, 1, 2, 5, 16, 17, 40])), tokens)
        before = draw(st.sampled_from([0, 1, 14, 15, 16, 17, 31, 32, 63, 100, 130]))
        before = min(before, blocks * BLOCK_SIZE - now)
        if before < 0:
            break
        rows.append((before, now))
        tokens -= now
        blocks -= -(-(before + now) // BLOCK_SIZE)
    return rows


@pytest.mark.parametrize("window", [None, 20])
@settings(max_examples=50)
@given(rows=ragged_rows(), seed=st.integers(0, 9))
def test_any_ragged_step_equals_dense_attention(paged, window, rows, seed):
    step = paged.make(rows, seed=seed, **SIZES)
    options = SCALE | {"sliding_window": window}
    got = paged.attend(step, paged.tiles(splits=2, keys=16), **options)
    np.testing.assert_allclose(got, paged.expected(step, **options), atol=3e-6)


@settings(max_examples=50)
@given(before=st.lists(st.integers(0, 200), max_size=NUM_ROWS), seed=st.integers(0, 9))
def test_any_step_of_single_tokens_equals_dense_attention(paged, before, seed):
    rows = [(n, 1) for n in before]
    sizes = SIZES | {"num_tokens": NUM_ROWS, "num_blocks": 100}
    step = paged.make(rows, seed=seed, **sizes)
    tiling = paged.tiles(splits=4, keys=16)
    got = paged.attend(step, tiling, single_token_rows=True, **SCALE)
    np.testing.assert_allclose(got, paged.expected(step, **SCALE), atol=3e-6)


def test_single_token_rows_is_only_a_promise(paged):
    step = paged.make([(3, 1), (0, 1), (20, 1)], num_rows=5, num_tokens=5)
    one, other = (
        paged.attend(step, paged.tiles(), single_token_rows=s, **SCALE)
        for s in (False, True)
    )
    np.testing.assert_allclose(one, other, atol=1e-6)
    assert np.abs(one).max() > 0.1


@pytest.mark.parametrize(
    ("single", "splits", "launches"),
    [
        (True, 1, ["decode"]),
        (True, 4, ["decode", "merge"]),
        (False, 1, ["decode", "prefill"]),
        (False, 4, ["decode", "merge", "prefill"]),
    ],
)
def test_a_step_makes_no_more_launches_than_it_needs(paged, single, splits, launches):
    step = paged.make([(3, 1)] * 4, num_rows=4, num_tokens=4)
    tiling = paged.tiles(splits=splits)
    metadata = attention_metadata(
        jnp.asarray(step.arrays["query_start_loc"]),
        num_tokens=4,
        group=2,
        tiling=tiling,
        single_token_rows=single,
    )
    attend = functools.partial(
        pallas_attention,
        metadata=metadata,
        scale=1.0,
        tiling=tiling,
        single_token_rows=single,
        interpret=True,
    )
    traced = jax.make_jaxpr(attend)(**step.arrays)
    inner = traced.eqns[0].params["jaxpr"].jaxpr
    names = [e.params["name"] for e in inner.eqns if e.primitive.name == "pallas_call"]
    assert names == [f"paged_attention_{name}" for name in launches]
    # All that is not a launch would be a kernel of its own.
    assert len(inner.eqns) == len(names)
