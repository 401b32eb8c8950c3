"""The backend against the attention that it is made of."""

import jax.numpy as jnp
import numpy as np
import pytest

from jengine.runner.attention import XlaAttend, attention_backend
from kernels_pallas.paged_attention.reference import reference_attention
from models.inputs import StepInputs
from models.kv_cache import LayerCache
from models.layers.attention_backend import Attend

BLOCK_SIZE = 4


@pytest.mark.parametrize("name", ["auto", "xla"])
def test_backends_by_name(name):
    backend = attention_backend(name)
    assert isinstance(backend, XlaAttend)
    assert isinstance(backend, Attend)
    # Programs are kept by the backend's value, so equal ones must be equal.
    assert backend == attention_backend(name)
    assert hash(backend) == hash(attention_backend(name))


@pytest.mark.parametrize("name", ["", "flash", "XLA", "pallas"])
def test_names_that_are_none(name):
    with pytest.raises(ValueError, match="use 'auto' or 'xla'"):
        attention_backend(name)


def _step(token_rows, block_tables, seq_lens, *, single):
    """Inputs of rows that run so many last tokens each."""
    starts = np.cumsum([0, *token_rows])
    slots = []
    for row, count in enumerate(token_rows):
        for position in range(seq_lens[row] - count, seq_lens[row]):
            block = block_tables[row][position // BLOCK_SIZE]
            slots.append(block * BLOCK_SIZE + position % BLOCK_SIZE)
    integers = {
        "token_ids": np.zeros(len(slots)),
        "positions": np.zeros(len(slots)),
        "slot_mapping": slots,
        "query_start_loc": starts,
        "seq_lens": seq_lens,
        "block_tables": block_tables,
        "logits_indices": np.zeros(len(seq_lens)),
    }
    arrays = {name: jnp.asarray(v, jnp.int32) for name, v in integers.items()}
    return StepInputs(**arrays, single_token_rows=single)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize(
    ("token_rows", "seq_lens", "single"),
    [([1, 1], [6, 3], True), ([1, 1], [6, 3], False), ([1, 5], [7, 5], False)],
)
def test_it_writes_the_steps_tokens_then_attends(token_rows, seq_lens, single, window):
    rng = np.random.default_rng(0)
    tables = [[3, 1], [2, 5]]
    cache = LayerCache(
        *(jnp.asarray(rng.normal(size=(6, 2, BLOCK_SIZE, 8)), jnp.float32),) * 2
    )
    inputs = _step(token_rows, tables, seq_lens, single=single)
    count = sum(token_rows)
    queries = jnp.asarray(rng.normal(size=(count, 4, 8)), jnp.float32)
    keys, values = jnp.asarray(rng.normal(size=(2, count, 2, 8)), jnp.float32)
    options = {"scale": 0.3, "sliding_window": window}
    out, written = attention_backend("xla")(
        queries, keys, values, cache, inputs, **options
    )
    want = {"keys": np.array(cache.keys), "values": np.array(cache.values)}
    for token, slot in enumerate(np.asarray(inputs.slot_mapping).tolist()):
        block, offset = divmod(slot, BLOCK_SIZE)
        want["keys"][block, :, offset] = keys[token]
        want["values"][block, :, offset] = values[token]
    np.testing.assert_array_equal(np.asarray(written.keys), want["keys"])
    np.testing.assert_array_equal(np.asarray(written.values), want["values"])
    expected = reference_attention(
        queries,
        written.keys,
        written.values,
        inputs.block_tables,
        inputs.query_start_loc,
        inputs.seq_lens,
        **options,
    )
    np.testing.assert_allclose(np.asarray(out), np.asarray(expected), atol=1e-5)
