import ml_dtypes
import numpy as np
import pytest

from jengine.bench.gpu_check.attention_case import (
    WILD_BLOCK,
    AttentionCase,
    make_arrays,
)

MIXED = AttentionCase(
    name="mixed",
    rows=((3, 1), (0, 6), (17, 2)),
    heads=4,
    kv_heads=2,
    head_dim=16,
    block_size=8,
    sinks=True,
)


def slots_of(case, arrays):
    """Block and offset of every token of every row."""
    for row, (before, now) in enumerate(case.rows):
        for position in range(before + now):
            block = arrays.block_tables[row, position // case.block_size]
            yield block, position % case.block_size


def test_each_token_has_a_slot_of_its_own_and_all_else_is_poison():
    arrays = make_arrays(MIXED, "float32")
    slots = list(slots_of(MIXED, arrays))
    assert len(set(slots)) == len(slots) == 4 + 6 + 19
    for cache in (arrays.keys, arrays.values):
        is_number = np.isfinite(cache).all(axis=(1, 3))
        assert {(int(b), int(o)) for b, o in np.argwhere(is_number)} == set(slots)
        assert np.isnan(cache[0]).all()
        assert np.isnan(cache[-1]).all()
    named = {int(block) for block, _ in slots}
    assert set(arrays.block_tables.ravel().tolist()) == named | {WILD_BLOCK}
    assert WILD_BLOCK * MIXED.block_size > arrays.keys.shape[0]


def test_padding_has_no_tokens():
    arrays = make_arrays(MIXED, "float32")
    assert arrays.query_start_loc.tolist() == [0, 1, 7, 9, 9, 9]
    assert arrays.seq_lens.tolist() == [4, 6, 19, 0, 0]
    assert arrays.queries.shape == (12, 4, 16)
    assert np.isnan(arrays.queries[9:]).all()
    assert np.isfinite(arrays.queries[:9]).all()
    assert arrays.sinks.shape == (4,)


def test_where_each_row_has_one_token_rows_and_tokens_are_the_same():
    case = AttentionCase(name="decode", rows=((0, 1), (9, 1)), heads=2, kv_heads=1)
    assert case.has_single_token_rows
    arrays = make_arrays(case, "bfloat16")
    assert len(arrays.queries) == len(arrays.seq_lens) == 4


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn", "float8_e5m2"])
def test_small_numbers_have_scales_that_are_poison_too(dtype):
    arrays = make_arrays(MIXED, dtype)
    assert arrays.queries.dtype == ml_dtypes.bfloat16
    assert arrays.keys.dtype.name == dtype
    slots = set(slots_of(MIXED, arrays))
    for scales in (arrays.key_scales, arrays.value_scales):
        is_number = np.isfinite(scales).all(axis=1)
        assert {(int(b), int(o)) for b, o in np.argwhere(is_number)} == slots
        assert np.nanmin(scales) > 0
    block, offset = next(iter(slots))
    numbers = arrays.keys[block, :, offset].astype(np.float32)
    assert len(np.unique(numbers)) > 8


def test_large_numbers_have_no_scales_and_seeds_differ():
    first, again, other = (
        make_arrays(MIXED, "float16", seed=seed) for seed in (1, 1, 2)
    )
    assert first.key_scales is first.value_scales is None
    np.testing.assert_array_equal(first.queries, again.queries)
    assert (first.queries[:9] != other.queries[:9]).mean() > 0.9
