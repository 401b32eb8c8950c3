"""The XLA path and the jnp reference against numpy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels_pallas.paged_attention import paged_attention, write_kv
from kernels_pallas.paged_attention.api import check_shapes
from kernels_pallas.paged_attention.reference import reference_attention

# (computed before, run now) of each row; rows that run one token come first.
RAGGED = {
    "one row": [(0, 5)],
    "decodes": [(4, 1), (130, 1), (15, 1), (16, 1), (0, 1)],
    "mixed": [(7, 1), (200, 1), (0, 33), (40, 17), (127, 2), (300, 40)],
    "chunk borders": [(127, 1), (128, 1), (96, 32), (95, 34), (0, 128), (1, 129)],
    "many decodes": [(i * 3, 1) for i in range(40)] + [(10, 70)],
}


def _case(rows, *, heads=4, kv_heads=2, head_dim=16, block_size=16, seed=0):
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


def _oracle(queries, rows, starts, dense, scale, window):
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


def _run(function, case, **options):
    queries, keys, values, tables, starts, lens, _ = case
    return function(
        jnp.asarray(queries, jnp.float32),
        jnp.asarray(keys, jnp.float32),
        jnp.asarray(values, jnp.float32),
        jnp.asarray(tables, jnp.int32),
        jnp.asarray(starts, jnp.int32),
        jnp.asarray(lens, jnp.int32),
        **options,
    )


CASES = [(name, None) for name in RAGGED] + [("mixed", w) for w in (1, 20, 1000)]


@pytest.mark.parametrize("function", [paged_attention, reference_attention])
@pytest.mark.parametrize(("name", "window"), CASES)
def test_equals_dense_attention_and_never_reads_what_it_must_not(
    function, name, window
):
    case = _case(RAGGED[name])
    options = {"scale": 0.3, "sliding_window": window}
    got = np.asarray(jax.jit(lambda: _run(function, case, **options))())
    want = _oracle(case[0], RAGGED[name], case[4], case[6], 0.3, window)
    np.testing.assert_allclose(got, want, atol=2e-6)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "block_size"),
    [(1, 1, 8, 8), (9, 3, 64, 16), (7, 1, 24, 32), (8, 8, 16, 128), (4, 2, 16, 5)],
)
def test_head_groups_and_block_sizes(heads, kv_heads, head_dim, block_size):
    sizes = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
    case = _case(RAGGED["mixed"], block_size=block_size, **sizes)
    got = np.asarray(_run(paged_attention, case, scale=0.2))
    want = _oracle(case[0], RAGGED["mixed"], case[4], case[6], 0.2, None)
    np.testing.assert_allclose(got, want, atol=2e-6)


@pytest.mark.parametrize("num_rows", [1, 31, 32, 33, 70])
def test_single_token_rows(num_rows):
    rows = [(i * 5, 1) for i in range(num_rows)]
    queries, keys, values, tables, starts, lens, dense = _case(rows)
    case = (queries[: num_rows + 3], keys, values, tables, starts, lens, dense)
    got = np.asarray(_run(paged_attention, case, scale=0.3, single_token_rows=True))
    want = _oracle(case[0], rows, starts, dense, 0.3, None)
    np.testing.assert_allclose(got, want, atol=2e-6)


@pytest.mark.parametrize("function", [paged_attention, reference_attention])
def test_a_value_that_is_nan_spoils_only_the_queries_that_see_it(function):
    rows = [(0, 12)]
    case = _case(rows)
    block, off = case[3][0, 0], 7
    case[1][block, :, off] = np.nan
    case[2][block, :, off] = np.nan
    got = np.asarray(_run(function, case, scale=0.3))
    want = _oracle(
        case[0][:7], [(0, 7)], [0], [tuple(a[:7] for a in case[6][0])], 0.3, None
    )
    np.testing.assert_allclose(got[:7], want, atol=2e-6)
    assert np.isnan(got[7:12]).all()


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
def test_shapes_that_do_not_fit_are_refused(change, message):
    names = ["queries", "keys", "values", "block_tables", "query_start_loc", "seq_lens"]
    arrays = dict(zip(names, _case(RAGGED["one row"])[:6], strict=True))
    arrays |= change
    kinds = [jnp.float32] * 3 + [jnp.int32] * 3
    args = [jnp.asarray(arrays[n], k) for n, k in zip(names, kinds, strict=True)]
    with pytest.raises(ValueError, match=message):
        check_shapes(*args)


def test_options_that_do_not_fit_are_refused():
    case = _case(RAGGED["one row"])
    with pytest.raises(ValueError, match="sliding_window is 0"):
        _run(paged_attention, case, scale=1.0, sliding_window=0)
    with pytest.raises(ValueError, match="10 queries for 4 rows"):
        _run(paged_attention, case, scale=1.0, single_token_rows=True)
