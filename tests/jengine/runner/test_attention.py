"""The backends against the attention that they are made of."""

import jax.numpy as jnp
import numpy as np
import pytest

from jengine.runner.attention import (
    AttentionBackend,
    XlaAttend,
    attention_backend,
)
from jengine.runner.device import GpuTarget
from jengine.runner.pallas_attention import HeadShape, PallasAttend
from kernels_pallas.paged_attention.reference import reference_attention
from models.inputs import StepInputs
from models.kv_cache import LayerCache

BLOCK_SIZE = 8
HEADS = HeadShape(num_heads=4, num_kv_heads=2, head_dim=8, dtype="float32")
A100 = GpuTarget("sm_80", 108)


@pytest.mark.parametrize("target", [None, A100])
@pytest.mark.parametrize(
    ("name", "kind"), [("xla", XlaAttend), ("pallas", PallasAttend)]
)
def test_backends_by_name(name, kind, target):
    backend = attention_backend(name, HEADS, target)
    assert isinstance(backend, kind)
    assert isinstance(backend, AttentionBackend)
    # Programs are kept by the backend's value, so equal ones must be equal.
    assert backend == attention_backend(name, HEADS, target)
    assert hash(backend) == hash(attention_backend(name, HEADS, target))


def test_kernels_are_interpreted_where_there_is_no_gpu():
    on_a_gpu = attention_backend("pallas", HEADS, A100)
    assert (on_a_gpu.target, on_a_gpu.interpret) == (A100, False)
    assert attention_backend("pallas", HEADS, None).interpret


@pytest.mark.parametrize("name", ["", "flash", "XLA", "auto"])
def test_names_that_are_none(name):
    with pytest.raises(ValueError, match="use 'xla' or 'pallas'"):
        attention_backend(name, HEADS, None)


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


@pytest.mark.parametrize(
    ("name", "token_rows", "seq_lens", "single", "window"),
    [
        ("xla", [1, 1], [11, 3], True, None),
        ("xla", [1, 1], [11, 3], False, 3),
        ("xla", [1, 5], [13, 5], False, None),
        ("xla", [1, 5], [13, 5], False, 3),
        # The kernels have tests of their own; each shape costs seconds here.
        ("pallas", [1, 1], [11, 3], True, 3),
        ("pallas", [1, 5], [13, 5], False, None),
    ],
)
def test_it_writes_the_steps_tokens_then_attends(
    name, token_rows, seq_lens, single, window
):
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
    backend = attention_backend(name, HEADS, None)
    inputs = inputs.replace(attention_metadata=backend.prepare(inputs))
    out, written = backend(queries, keys, values, cache, inputs, **options)
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
