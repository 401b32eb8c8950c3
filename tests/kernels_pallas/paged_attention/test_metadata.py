"""The tiles of the prefill launch, against cutting the rows one by one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_pallas.paged_attention.metadata import attention_metadata, max_tiles
from kernels_pallas.paged_attention.tiling import Tile, Tiling

NUM_TOKENS, NUM_ROWS = 64, 8


@functools.partial(jax.jit, static_argnames=("num_tokens", "group"))
def made(starts, *, num_tokens, group):
    return attention_metadata(
        starts,
        num_tokens=num_tokens,
        group=group,
        tiling=Tiling(Tile(16, 16), Tile(16, 16)),
    )


def tiles_of(metadata):
    """(row, first token) of every tile that has tokens, in the order of programs."""
    pairs = zip(*[a.tolist() for a in metadata], strict=True)
    return [(row, token) for row, token in pairs if token < NUM_TOKENS]


@st.composite
def lengths(draw):
    """Tokens of each row; fewer rows or tokens than there is room for."""
    out = []
    for _ in range(draw(st.integers(0, NUM_ROWS))):
        left = NUM_TOKENS - sum(out)
        out.append(min(draw(st.sampled_from([0, 1, 1, 2, 3, 4, 5, 17, 64])), left))
    return out


@given(counts=lengths(), group=st.sampled_from([1, 4, 8, 16]))
def test_every_token_but_those_of_single_rows_is_in_one_tile(counts, group):
    size = 16 // group
    starts = np.cumsum([0, *counts] + [0] * (NUM_ROWS - len(counts)))
    rows = [*counts, NUM_TOKENS - starts[-1]]
    want = set()
    for row, (start, count) in enumerate(
        zip([*starts[: len(counts)], starts[-1]], rows, strict=True)
    ):
        is_padding = row == len(counts)
        if count != 1 or is_padding:
            name = -1 if is_padding else row
            want |= {(name, start + i) for i in range(0, count, size)}
    metadata = made(jnp.asarray(starts, jnp.int32), num_tokens=NUM_TOKENS, group=group)
    found = tiles_of(metadata)
    assert len(found) == len(set(found))
    assert set(found) == want
    assert len(metadata.tile_rows) == max_tiles(NUM_TOKENS, NUM_ROWS, size)


def test_tiles_without_tokens_start_past_the_last_one():
    starts = jnp.asarray([0, 60, 64, 64], jnp.int32)
    metadata = made(starts, num_tokens=64, group=4)
    empty = [row for row, token in zip(*metadata, strict=True) if token >= 64]
    assert empty
    assert {int(row) for row in empty} == {-1}


def test_the_tiles_with_most_keys_come_first():
    metadata = made(jnp.asarray([0, 20, 64], jnp.int32), num_tokens=64, group=4)
    tokens = [token for row, token in tiles_of(metadata) if row == 1]
    assert tokens == sorted(tokens, reverse=True)


def test_steps_of_single_rows_need_no_tiles():
    metadata = attention_metadata(
        jnp.arange(9, dtype=jnp.int32),
        num_tokens=8,
        group=4,
        tiling=Tiling(Tile(16, 16), Tile(16, 16)),
        single_token_rows=True,
    )
    assert [a.shape for a in metadata] == [(0,), (0,)]


def test_the_dtype_is_int32():
    metadata = made(jnp.asarray([0, 5], jnp.int32), num_tokens=8, group=1)
    assert {a.dtype for a in metadata} == {jnp.dtype("int32")}


def test_a_group_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="use a tile of 32 or more"):
        made(jnp.asarray([0, 5], jnp.int32), num_tokens=8, group=17)


@given(
    counts=st.lists(st.integers(2, 30), min_size=1, max_size=12),
    padding=st.integers(0, 20),
    size=st.integers(1, 40),
)
def test_the_bound_on_tiles_holds(counts, padding, size):
    tiles = sum(-(-n // size) for n in [*counts, padding])
    assert tiles <= max_tiles(sum(counts) + padding, len(counts), size)
