import dataclasses
import functools

import jax
import numpy as np
import pytest

from jengine.bench.gpu_check.attention_case import AttentionCase, make_arrays
from jengine.bench.gpu_check.attention_oracle import expected_attention
from kernels_pallas.paged_attention.reference import reference_attention

ONE = AttentionCase(
    name="one token", rows=((2, 1),), heads=1, kv_heads=1, head_dim=2, block_size=4
)


def arrays_of(case, keys, values, queries, sinks=None):
    """The arrays of a case whose numbers are given in order of position."""
    arrays = make_arrays(case, "float32")
    block = arrays.block_tables[0, 0]
    arrays.keys[block, 0, : len(keys)] = keys
    arrays.values[block, 0, : len(values)] = values
    arrays.queries[0, 0] = queries
    return arrays._replace(sinks=None if sinks is None else np.float32([sinks]))


KEYS = [[0.0, 0.0], [np.log(2.0) * 2**0.5, 0.0], [np.log(4.0) * 2**0.5, 0.0]]
VALUES = [[7.0, 0.0], [0.0, 7.0], [14.0, 7.0]]


@pytest.mark.parametrize(
    ("options", "sink", "weights"),
    [
        ({}, None, [1 / 7, 2 / 7, 4 / 7]),
        ({"sliding_window": 2}, None, [0, 1 / 3, 2 / 3]),
        ({}, np.log(7.0), [1 / 14, 2 / 14, 4 / 14]),
        ({"soft_cap": 1e-9}, None, [1 / 3, 1 / 3, 1 / 3]),
    ],
)
def test_weights_known_by_hand(options, sink, weights):
    case = dataclasses.replace(ONE, **options)
    arrays = arrays_of(case, KEYS, VALUES, [1.0, 0.0], sink)
    expected = np.array(weights) @ np.array(VALUES)
    np.testing.assert_allclose(
        expected_attention(case, arrays), expected[None, None], rtol=1e-6
    )


def test_scales_multiply_what_they_belong_to():
    case = AttentionCase(
        name="scaled", rows=((3, 2), (0, 7)), heads=4, kv_heads=2, head_dim=16
    )
    arrays = make_arrays(case, "int8")
    plain = arrays._replace(
        keys=arrays.keys.astype(np.float32) * arrays.key_scales[..., None],
        values=arrays.values.astype(np.float32) * arrays.value_scales[..., None],
        key_scales=None,
        value_scales=None,
    )
    np.testing.assert_allclose(
        expected_attention(case, arrays), expected_attention(case, plain), rtol=1e-5
    )


def test_it_agrees_with_the_definition_in_jax():
    case = AttentionCase(
        name="ragged",
        rows=((0, 1), (20, 1), (0, 9), (13, 4)),
        heads=6,
        kv_heads=2,
        head_dim=8,
        block_size=8,
        sliding_window=5,
    )
    arrays = make_arrays(case, "float32")
    # The definition gathers whole tables, so theirs must name real blocks.
    tables = np.where(arrays.block_tables < len(arrays.keys), arrays.block_tables, 0)
    definition = functools.partial(
        reference_attention, scale=case.scale, sliding_window=5
    )
    found = jax.jit(definition)(*arrays[:3], tables, *arrays[4:6])
    np.testing.assert_allclose(
        np.asarray(found)[: case.num_tokens],
        expected_attention(case, arrays),
        atol=2e-6,
    )
