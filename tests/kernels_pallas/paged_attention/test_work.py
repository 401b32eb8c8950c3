"""Which queries and keys a program has, against counting them one by one."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_pallas.paged_attention.problem import Problem
from kernels_pallas.paged_attention.tiling import Tile
from kernels_pallas.paged_attention.work import Work, find_rows, find_span

KEYS = 16


def problem(*, tiled, splits=1, window=None, group=3):
    return Problem(
        tile=Tile(16, KEYS, splits),
        scale=1.0,
        group=group,
        block_size=8,
        head_dim=8,
        num_tokens=100,
        sliding_window=window,
        tiled=tiled,
    )


def work_of(*, token=0, end=1, seq_len=1, head=0, split=0):
    numbers = [jnp.int32(n) for n in (4, token, end, seq_len, head, split)]
    return Work(*numbers, True)


def positions(span, first, last):
    """The positions in the tiles `first` to `last` of a span."""
    return range(
        int(span.origin) + int(first) * KEYS, int(span.origin) + int(last) * KEYS
    )


def seen(work, size, window):
    """The positions that each query of a program sees."""
    before = int(work.seq_len) - int(work.end)
    last = min(int(work.token) + size, int(work.end))
    for token in range(int(work.token), last):
        end = before + token + 1
        yield set(range(0 if window is None else max(0, end - window), end))


@given(
    before=st.integers(0, 90),
    now=st.integers(2, 40),
    tile=st.integers(0, 7),
    window=st.none() | st.integers(1, 100),
)
def test_a_tile_covers_what_its_queries_see_and_no_more(before, now, tile, window):
    statics = problem(tiled=True, window=window)
    start = 7 + min(tile * statics.queries, now - 1)
    work = work_of(token=start, end=7 + now, seq_len=before + now)
    check_span(work, statics, [find_span(work, statics)])


@given(
    seq_len=st.integers(0, 200),
    splits=st.sampled_from([1, 2, 8]),
    window=st.none() | st.integers(1, 100),
)
def test_splits_divide_what_a_query_sees(seq_len, splits, window):
    statics = problem(tiled=False, splits=splits, window=window)
    works = [work_of(seq_len=seq_len, split=i) for i in range(splits)]
    check_span(works[0], statics, [find_span(work, statics) for work in works])


def check_span(work, statics, spans):
    sees = list(seen(work, statics.queries, statics.sliding_window))
    anyone, everyone = set.union(*sees), set.intersection(*sees)
    covered = []
    for span in spans:
        assert set(positions(span, span.first, span.full)) <= everyone
        masked = positions(span, max(int(span.full), int(span.first)), span.last)
        covered += positions(span, span.first, span.full)
        covered += [p for p in masked if p < int(span.end)]
    assert len(covered) == len(set(covered))
    assert set(covered) == anyone


def test_only_the_last_tile_of_a_single_query_is_masked():
    for window in (None, 20, 32):
        span = find_span(work_of(seq_len=100), problem(tiled=False, window=window))
        assert int(span.last) - int(span.full) <= 1


def test_rows_are_tokens_times_heads():
    rows = find_rows(work_of(token=20, end=23, seq_len=50, head=2), problem(tiled=True))
    assert rows.token.tolist() == [20 + i // 3 for i in range(16)]
    assert rows.head.tolist() == [6 + i % 3 for i in range(16)]
    assert rows.is_real.tolist() == [i < 9 for i in range(16)]
    np.testing.assert_array_equal(rows.position[:9], [47] * 3 + [48] * 3 + [49] * 3)


@pytest.mark.parametrize(("group", "real"), [(1, 16), (7, 14), (16, 16)])
def test_rows_that_no_whole_token_fills_are_not_used(group, real):
    work = work_of(token=0, end=90, seq_len=90)
    rows = find_rows(work, problem(tiled=True, group=group))
    assert int(rows.is_real.sum()) == real
