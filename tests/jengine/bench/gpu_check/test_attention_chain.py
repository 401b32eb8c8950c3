import jax
import numpy as np
import pytest

from jengine.bench.gpu_check.arithmetic import Heads
from jengine.bench.gpu_check.attention_chain import (
    ChainShape,
    make_chain_arrays,
    pallas_chain,
    xla_chain,
)
from jengine.bench.gpu_check.target import find_target
from kernels_pallas.paged_attention import Tile, Tiling

SHAPE = ChainShape(rows=2, context=40, queries=1, heads=Heads(4, 2, 16), block_size=8)


def test_calls_take_turns_until_the_cache_is_full_of_others():
    num_bytes = SHAPE.work.bytes_moved
    assert SHAPE.num_calls(1) == 2
    assert SHAPE.num_calls(5 * num_bytes) == 5
    assert SHAPE.num_calls(5 * num_bytes + 1) == 6
    assert SHAPE.num_calls(10**9 * num_bytes) == 64


def test_no_two_calls_read_the_same_block():
    queries, arrays = make_chain_arrays(SHAPE, find_target(), 3)
    assert queries.shape == (2, 4, 16)
    assert len(arrays.tables) == 3
    blocks = np.concatenate([np.ravel(table) for table in arrays.tables])
    assert sorted(blocks.tolist()) == list(range(1, 3 * SHAPE.num_blocks + 1))
    assert arrays.keys.shape == (3 * SHAPE.num_blocks + 1, 2, 8, 16)
    assert arrays.seq_lens.tolist() == [40, 40]
    assert arrays.query_start_loc.tolist() == [0, 1, 2]


def test_each_call_attends_for_what_the_last_one_returned():
    queries, arrays = make_chain_arrays(SHAPE, find_target(), 2)
    chain = jax.jit(xla_chain(SHAPE))
    first, second = (arrays._replace(tables=(table,)) for table in arrays.tables)
    step_by_step = chain(chain(queries, first), second)
    together = chain(queries, arrays)
    np.testing.assert_allclose(
        *(np.asarray(a, np.float32) for a in (together, step_by_step)), atol=1e-2
    )
    other = chain(chain(queries, second), first)
    assert np.abs(np.asarray(other - together, np.float32)).max() > 0.05


@pytest.mark.slow
def test_both_paths_compute_the_same_chain():
    first, arrays = make_chain_arrays(SHAPE, find_target(), 2)
    tiling = Tiling(decode=Tile(16, 16), prefill=Tile(32, 16))
    pallas = pallas_chain(SHAPE, tiling, interpret=True)
    found, expected = (
        np.asarray(jax.jit(chain)(first, arrays), np.float32)
        for chain in (pallas, xla_chain(SHAPE))
    )
    assert found.shape == (2, 4, 16)
    np.testing.assert_allclose(found, expected, atol=2e-2)
