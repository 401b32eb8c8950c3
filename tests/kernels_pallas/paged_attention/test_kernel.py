"""The kernel in interpret mode against dense attention in numpy, float64."""

import numpy as np
import pytest

# (computed before, run now) of each row: one query among more, none, whole prompts,
# contexts that end on and around borders of blocks and tiles.
ROWS = [(0, 1), (15, 1), (199, 1), (0, 37), (128, 5), (9, 0), (236, 64), (76, 1)]
SINGLE = [(before, 1) for before in (0, 15, 16, 31, 199, 300)]
TOLERANCE = {"float32": 3e-6, "float16": 4e-3, "bfloat16": 3e-2}

SIZES = {"num_rows": 8, "num_tokens": 8, "heads": 8, "head_dim": 64}

# name: (sizes of the step, sizes of the tiles, options of the call)
MIXED = {
    "one split": ({}, {}, {}),
    "4 splits": ({}, {"splits": 4}, {}),
    "a group of 7": ({"heads": 14}, {"splits": 2}, {}),
    "80 features": ({"head_dim": 80}, {}, {}),
    "a window": ({}, {}, {"sliding_window": 40}),
    "a window and splits": ({}, {"splits": 4}, {"sliding_window": 40}),
    "sinks and splits": ({"sinks": True}, {"splits": 4}, {}),
    "bfloat16": ({"dtype": "bfloat16", "head_dim": 128}, {"splits": 2}, {}),
    "everything": (
        {"cache_dtype": "int8", "sinks": True, "head_dim": 48, "heads": 6},
        {"splits": 4},
        {"sliding_window": 70, "soft_cap": 3.0},
    ),
}
DECODES = {
    "more splits than tiles": ({}, {"splits": 16}, {}),
    "tiles wider than contexts": ({}, {"keys": 512}, {}),
    "a group of 1": ({"heads": 4, "kv_heads": 4}, {"splits": 2}, {}),
    "a group of 16": ({"heads": 16, "kv_heads": 1}, {"splits": 2}, {}),
    "a group of 40": ({"heads": 40, "kv_heads": 1}, {"rows": 64}, {}),
    "256 features": ({"head_dim": 256}, {"splits": 2}, {}),
    "blocks of 8": ({"block_size": 8}, {}, {}),
    "blocks of 24": ({"block_size": 24}, {}, {}),
    "blocks of 128": ({"block_size": 128}, {}, {}),
    "a window of 1": ({}, {"splits": 2}, {"sliding_window": 1}),
    "a soft cap": ({"spread": 8.0}, {}, {"soft_cap": 5.0}),
    "sinks": ({"sinks": True}, {}, {}),
    "sinks, splits and padding": ({"sinks": True}, {"splits": 4}, {}),
    "float16": ({"dtype": "float16"}, {"splits": 2}, {}),
    "a cache of bfloat16": ({"cache_dtype": "bfloat16"}, {}, {}),
    "a cache of e4m3": ({"cache_dtype": "float8_e4m3fn"}, {"splits": 2}, {}),
    "a cache of e5m2": ({"cache_dtype": "float8_e5m2"}, {}, {}),
}


def check(paged, step, tiling, **options):
    options |= {"scale": step.arrays["queries"].shape[2] ** -0.5}
    got = paged.attend(step, tiling, **options)
    options.pop("single_token_rows", None)
    tolerance = TOLERANCE[step.arrays["queries"].dtype.name]
    np.testing.assert_allclose(got, paged.expected(step, **options), atol=tolerance)


@pytest.mark.parametrize("name", MIXED)
def test_mixed_steps_equal_dense_attention_and_never_read_poison(paged, name):
    sizes, tiles, options = MIXED[name]
    check(
        paged, paged.make(ROWS, **{"heads": 8} | sizes), paged.tiles(**tiles), **options
    )


@pytest.mark.parametrize("name", DECODES)
def test_single_token_rows_equal_dense_attention_and_never_read_poison(paged, name):
    sizes, tiles, options = DECODES[name]
    step = paged.make(SINGLE, **SIZES | sizes)
    check(paged, step, paged.tiles(**tiles), single_token_rows=True, **options)


def test_a_cache_of_bytes_with_queries_of_bfloat16(paged):
    step = paged.make(SINGLE, **SIZES, cache_dtype="int8", dtype="bfloat16")
    check(paged, step, paged.tiles(), single_token_rows=True)


@pytest.mark.parametrize("splits", [1, 4])
def test_a_total_that_is_no_number_shows(paged, splits):
    step = paged.make(SINGLE, **SIZES)
    block, offset = step.arrays["block_tables"][4, 3], 5
    step.arrays["keys"][block, :, offset] = np.nan
    options = {"scale": 0.125, "single_token_rows": True}
    got = paged.attend(step, paged.tiles(splits=splits), **options)
    assert np.isnan(got[4]).all()
    assert np.isfinite(np.delete(got, 4, axis=0)).all()
