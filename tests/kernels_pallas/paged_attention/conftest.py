"""Steps over a paged cache, and dense attention in float64 to compare with."""

import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

# (computed before, run now) of each row; rows that run one token come first.
RAGGED = {
    "one row": [(0, 5)],
    "decodes": [(4, 1), (130, 1), (15, 1), (16, 1), (0, 1)],
    "mixed": [(7, 1), (200, 1), (0, 33), (40, 17), (127, 2), (300, 40)],
    "chunk borders": [(127, 1), (128, 1), (96, 32), (95, 34), (0, 128), (1, 129)],
    "many decodes": [(i * 3, 1) for i in range(40)] + [(10, 70)],
}


def make_case(rows, *, heads=4, kv_heads=2, head_dim=16, block_size=16, seed=0):
    """Arrays of a step, with NaN in every place that no query may see."""
    rng = np.random.default_rng(seed)
    lens = np.array([before + now for before, now in rows])
    blocks_of = [-(-n // block_size) for n in lens]
    num_blocks = 1 + sum(blocks_of) + 3
    ids = iter(rng.permutation(np.arange(1, num_blocks)))
    shape = (num_blocks, kv_heads, block_size, head_dim)
    keys, values = np.full(shape, np.nan), np.full(shape, np.nan)
    tables = np.zeros((len(rows) + 3, max(blocks_of) + 2), np.int32)
    dense = []
    for row, length in enumerate(lens):
        table = [int(next(ids)) for _ in range(blocks_of[row])]
        tables[row, : len(table)] = table
        k, v = rng.normal(size=(2, length, kv_heads, head_dim))
        for pos in range(length):
            block, off = table[pos // block_size], pos % block_size
            keys[block, :, off], values[block, :, off] = k[pos], v[pos]
        dense.append((k, v))
    starts = np.cumsum([0] + [now for _, now in rows] + [0, 0, 0])
    queries = rng.normal(size=(starts[-1] + 5, heads, head_dim))
    return queries, keys, values, tables, starts, np.append(lens, [0, 0, 0]), dense


def oracle(queries, rows, starts, dense, scale, window):
    out = np.zeros_like(queries)
    for row, (before, now) in enumerate(rows):
        k, v = dense[row]
        group = queries.shape[1] // k.shape[1]
        for i in range(now):
            last = before + i
            first = 0 if window is None else max(0, last - window + 1)
            for head in range(queries.shape[1]):
                q = queries[starts[row] + i, head]
                scores = k[first : last + 1, head // group] @ q * scale
                weights = np.exp(scores - scores.max())
                seen = v[first : last + 1, head // group]
                out[starts[row] + i, head] = weights @ seen / weights.sum()
    return out


def run_case(function, case, **options):
    """Run a function on a step's arrays, compiled as a whole."""
    kinds = [jnp.float32] * 3 + [jnp.int32] * 3
    arrays = [jnp.asarray(a, k) for a, k in zip(case[:6], kinds, strict=True)]
    return jax.jit(functools.partial(function, **options))(*arrays)


CASES = [(name, None) for name in RAGGED] + [("mixed", w) for w in (1, 20, 1000)]


@pytest.fixture(scope="session")
def steps():
    """Makes steps (`make`), runs a function on one (`run`), and knows what is right.

    `rows` are lists of (tokens computed before, tokens run now) by name.
    """
    return types.SimpleNamespace(
        make=make_case, run=run_case, oracle=oracle, rows=RAGGED
    )


@pytest.fixture(params=CASES, ids=[f"{name}-{window}" for name, window in CASES])
def ragged(request):
    """A step, its rows and its sliding window; every kind of step in turn."""
    name, window = request.param
    return make_case(RAGGED[name]), RAGGED[name], window


@pytest.fixture
def check_nan_stays_where_it_is_seen():
    """Checks that a NaN in the cache spoils only the queries that see it."""

    def check(function):
        case = make_case([(0, 12)])
        block, off = case[3][0, 0], 7
        case[1][block, :, off] = np.nan
        case[2][block, :, off] = np.nan
        got = np.asarray(run_case(function, case, scale=0.3))
        seen = [tuple(a[:7] for a in case[6][0])]
        want = oracle(case[0][:7], [(0, 7)], [0], seen, 0.3, None)
        np.testing.assert_allclose(got[:7], want, atol=2e-6)
        assert np.isnan(got[7:12]).all()

    return check
