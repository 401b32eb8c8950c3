"""Steps over a paged cache full of poison, and dense attention to compare with."""

import dataclasses
import functools
import types
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from kernels_pallas.paged_attention import Tile, Tiling, attention_metadata
from kernels_pallas.paged_attention.api import pallas_attention

# (computed before, run now) of each row; rows that run one token come first.
RAGGED = {
    "one row": [(0, 5)],
    "decodes": [(4, 1), (130, 1), (15, 1), (16, 1), (0, 1)],
    "mixed": [(7, 1), (200, 1), (0, 33), (40, 17), (127, 2), (300, 40)],
    "chunk borders": [(127, 1), (128, 1), (96, 32), (95, 34), (0, 128), (1, 129)],
    "many decodes": [(i * 3, 1) for i in range(40)] + [(10, 70)],
}
CASES = [(name, None) for name in RAGGED] + [("mixed", w) for w in (1, 20, 1000)]
WILD = 2**29  # a block id that no cache has; a read of it would find the last block
BAD_BYTE = 127  # what stands for NaN in int8; its scale is NaN
# A kernel in interpret mode is a long program that runs once.
QUICK_COMPILE = {"xla_backend_optimization_level": 0}


@dataclasses.dataclass(frozen=True, eq=False)
class PagedStep:
    """A step's arrays by the names of the calls, and what they mean.

    Attributes:
      arrays: all arrays; what no query may see is NaN, and block ids past a row's
        tokens are wild.
      rows: (computed before, run now) of each row.
      dense: keys and values of each row, float64, [tokens, KV heads, D].
    """

    arrays: dict[str, np.ndarray]
    rows: list[tuple[int, int]]
    dense: list[tuple[np.ndarray, np.ndarray]]


def make(
    rows,
    *,
    heads=4,
    kv_heads=2,
    head_dim=16,
    block_size=16,
    num_rows=None,
    num_tokens=None,
    num_blocks=None,
    dtype="float32",
    cache_dtype=None,
    sinks=False,
    spread=1.0,
    seed=0,
):
    """Lay rows out in a cache; `spread` is that of the queries."""
    rng = np.random.default_rng(seed)
    lens = [before + now for before, now in rows]
    used = [-(-n // block_size) for n in lens]
    # A given number of blocks gives tables of one width, whatever the rows.
    width = num_blocks or max(used) + 2
    num_blocks = num_blocks or sum(used) + 5
    num_rows = num_rows or len(rows) + 3
    # The first and last block stay poison: clamped wild ids land there.
    ids = iter(1 + rng.permutation(num_blocks - 2))
    tables = np.full((num_rows, width), WILD, np.int32)
    is_used = np.zeros((num_blocks, 1, block_size), bool)
    for row, length in enumerate(lens):
        tables[row, : used[row]] = [next(ids) for _ in range(used[row])]
        position = np.arange(length)
        is_used[tables[row, position // block_size], 0, position % block_size] = True
    shape = (num_blocks, kv_heads, block_size, head_dim)
    keys, key_scales = _pool(rng, shape, is_used, cache_dtype or dtype)
    values, value_scales = _pool(rng, shape, is_used, cache_dtype or dtype)
    starts = np.cumsum([0] + [now for _, now in rows])
    queries = np.full((num_tokens or starts[-1] + 5, heads, head_dim), np.nan)
    queries[: starts[-1]] = spread * rng.normal(size=(starts[-1], heads, head_dim))
    padding = num_rows - len(rows)
    arrays = {
        "queries": queries.astype(_dtype(dtype)),
        "keys": keys,
        "values": values,
        "block_tables": tables,
        "query_start_loc": np.append(starts, [starts[-1]] * padding).astype(np.int32),
        "seq_lens": np.append(lens, [0] * padding).astype(np.int32),
    }
    if key_scales is not None:
        arrays |= {"key_scales": key_scales, "value_scales": value_scales}
    if sinks:
        arrays["sinks"] = rng.normal(size=heads).astype(np.float32)
    dense = [_dense(arrays, row, length) for row, length in enumerate(lens)]
    return PagedStep(arrays, list(rows), dense)


def _dtype(name):
    return np.dtype(getattr(ml_dtypes, name, name))


def _pool(rng, shape, is_used, name):
    """A cache, and the scale of each slot if its numbers are bytes."""
    dtype = _dtype(name)
    is_int = dtype == np.int8
    pool = rng.integers(-100, 101, shape) if is_int else rng.normal(size=shape)
    bad = BAD_BYTE if is_int else np.nan
    pool = np.where(is_used[..., None], pool, bad).astype(dtype)
    if dtype.itemsize > 1:
        return pool, None
    scales = rng.uniform(0.5, 1.5, shape[:3]) / (50 if is_int else 1)
    return pool, np.where(is_used, scales, np.nan).astype(np.float32)


def _dense(arrays, row, length):
    """Keys and values of one row, read back from the cache."""
    out = []
    block_size = arrays["keys"].shape[2]
    position = np.arange(length)
    block = arrays["block_tables"][row, position // block_size]
    at = (block, slice(None), position % block_size)
    for pool, scales in (("keys", "key_scales"), ("values", "value_scales")):
        found = arrays[pool][at].astype(np.float64)
        if scales in arrays:
            found = found * arrays[scales][at].astype(np.float64)[..., None]
        out.append(found)
    return tuple(out)


def expected(step, *, scale, sliding_window=None, soft_cap=None):
    """Dense attention in float64, query by query; zeros for padding."""
    queries = step.arrays["queries"].astype(np.float64)
    out = np.zeros_like(queries)
    starts = step.arrays["query_start_loc"]
    sinks = step.arrays.get("sinks")
    for row, (before, now) in enumerate(step.rows):
        keys, values = (
            np.repeat(a, queries.shape[1] // a.shape[1], axis=1)
            for a in step.dense[row]
        )
        for i in range(now):
            last = before + i + 1
            first = 0 if sliding_window is None else max(0, last - sliding_window)
            query = queries[starts[row] + i]
            scores = scale * np.einsum("hd,khd->kh", query, keys[first:last])
            if soft_cap is not None:
                scores = soft_cap * np.tanh(scores / soft_cap)
            top = scores.max(axis=0)
            weights = np.exp(scores - top)
            total = weights.sum(axis=0)
            if sinks is not None:
                total = total + np.exp(sinks - top)
            attended = np.einsum("kh,khd->hd", weights / total, values[first:last])
            out[starts[row] + i] = attended
    return out


def run(function, step, **options):
    """Run a function on a step's arrays, compiled as a whole."""
    arrays = {name: jnp.asarray(array) for name, array in step.arrays.items()}
    return np.asarray(jax.jit(functools.partial(function, **options))(**arrays))


def attend(step, tiling, *, attention=pallas_attention, **options):
    """Run the kernel in interpret mode; `attention` may be another of its kind."""
    run_step = _compiled(attention, tiling, tuple(sorted(options.items())))
    arrays = {name: jnp.asarray(array) for name, array in step.arrays.items()}
    return np.asarray(run_step(arrays)).astype(np.float64)


@functools.cache
def _compiled(attention, tiling, options):
    options = dict(options)

    def run_step(arrays: dict[str, Any]):
        metadata = attention_metadata(
            arrays["query_start_loc"],
            num_tokens=arrays["queries"].shape[0],
            group=arrays["queries"].shape[1] // arrays["keys"].shape[1],
            tiling=tiling,
            single_token_rows=options.get("single_token_rows", False),
        )
        return attention(
            **arrays, metadata=metadata, tiling=tiling, interpret=True, **options
        )

    return jax.jit(run_step, compiler_options=QUICK_COMPILE)


def tiles(*, rows=16, keys=32, splits=1, prefill_rows=64, prefill_keys=32):
    """Small tiles, so that short contexts have several."""
    return Tiling(Tile(rows, keys, splits), Tile(prefill_rows, prefill_keys))


@pytest.fixture(scope="session")
def paged():
    """Makes steps (`make`) and knows what is right (`expected`).

    `run` runs a function on a step, `attend` the kernel with `tiles`; `rows` are
    lists of (tokens computed before, tokens run now) by name.
    """
    return types.SimpleNamespace(
        make=make, expected=expected, run=run, attend=attend, tiles=tiles, rows=RAGGED
    )


@pytest.fixture(params=CASES, ids=[f"{name}-{window}" for name, window in CASES])
def ragged(request):
    """A step and its sliding window; every kind of step in turn."""
    name, window = request.param
    return make(RAGGED[name]), window


@pytest.fixture
def check_nan_stays_where_it_is_seen():
    """Checks that a NaN in the cache spoils only the queries that see it."""

    def check(function):
        step = make([(0, 12)])
        block = step.arrays["block_tables"][0, 0]
        for name in ("keys", "values"):
            step.arrays[name][block, :, 7] = np.nan
        got = run(function, step, scale=0.3)
        np.testing.assert_allclose(got[:7], expected(step, scale=0.3)[:7], atol=2e-6)
        assert np.isnan(got[7:12]).all()

    return check
