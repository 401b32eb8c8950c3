"""Penalties and biases against numpy in float64, by the definition."""

import jax
import jax.numpy as jnp
import numpy as np

from jengine.core.plan import SamplingOptions
from jengine.runner.adjust import (
    IN_PROMPT,
    Penalties,
    SeatTables,
    adjust,
    bias_row,
    count_row,
    count_tokens,
    new_tables,
    set_seat,
    table_shapes,
)

VOCAB = 13


def test_count_row_counts_the_output_and_marks_the_prompt():
    row = count_row((3, 3, 5, 5, 5, 1), 3, VOCAB)
    expected = np.zeros(VOCAB, np.int32)
    expected[[3, 5, 1]] = [IN_PROMPT, IN_PROMPT + 2, 1]
    np.testing.assert_array_equal(row, expected)
    assert count_row((), 0, VOCAB).tolist() == [0] * VOCAB


def test_bias_row_forbids_by_minus_infinity():
    options = SamplingOptions(
        logit_bias=((2, 1.5), (3, -2.0), (4, 0.5)),
        allowed_token_ids=(2, 3, 5),
        banned_token_ids=(5,),
    )
    row = bias_row(options, 6)
    assert row.tolist() == [-np.inf, -np.inf, 1.5, -2.0, -np.inf, -np.inf]
    assert not bias_row(SamplingOptions(), 6).any()


def test_adjusted_logits_equal_the_definition():
    rng = np.random.default_rng(0)
    histories = [([1, 2, 2, 9], 2), ([4, 4, 4, 4, 7], 4), ([3], 1), ([8, 8, 8], 0)]
    tables = new_tables(5, VOCAB, jax.local_devices()[0])
    biases = rng.normal(size=(5, VOCAB)).astype(np.float32)
    for seat, (history, num_prompt) in enumerate(histories):
        counts = count_row(tuple(history), num_prompt, VOCAB)
        rows = jnp.asarray(counts), jnp.asarray(biases[seat])
        tables = set_seat(tables, jnp.asarray(seat), *rows)
    seats = [2, 0, 3, 1, 5]  # the last is padding: no such seat
    biased = [1, 0, 1, 1, 0]
    presence, frequency = rng.normal(size=(2, 5))
    repetition = rng.uniform(0.5, 2, 5)
    logits = rng.normal(size=(5, VOCAB)).astype(np.float32)
    found = adjust(
        jnp.asarray(logits),
        tables,
        jnp.asarray(seats, jnp.int32),
        Penalties(
            *(jnp.asarray(p, jnp.float32) for p in (presence, frequency, repetition))
        ),
        jnp.asarray(biased, jnp.int32),
    )
    expected = logits.astype(np.float64)
    for row, seat in enumerate(seats[:4]):
        history, num_prompt = histories[seat]
        expected[row] += biases[seat] if biased[row] else 0
        for token in set(history):
            factor = repetition[row]
            expected[row, token] *= factor if expected[row, token] < 0 else 1 / factor
        output = history[num_prompt:]
        for token in set(output):
            expected[row, token] -= frequency[row] * output.count(token) + presence[row]
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=1e-5)


def test_stale_biases_that_forbid_reach_nobody():
    bias = np.full((1, VOCAB), -np.inf, np.float32)
    tables = SeatTables(jnp.zeros((1, VOCAB), jnp.int32), jnp.asarray(bias))
    logits = jnp.ones((1, VOCAB), jnp.float32)
    zero, one = jnp.zeros(1, jnp.float32), jnp.ones(1, jnp.float32)
    seat = jnp.zeros(1, jnp.int32)
    found = adjust(logits, tables, seat, Penalties(zero, zero, one), seat)
    assert np.asarray(found).tolist() == [[1.0] * VOCAB]


def test_tokens_are_counted_and_padding_is_not():
    counts = jnp.zeros((3, VOCAB), jnp.int32).at[1, 4].set(IN_PROMPT)
    seats = jnp.asarray([1, 3, 0, 1], jnp.int32)
    tokens = jnp.asarray([4, 2, VOCAB, 4], jnp.int32)  # a failed row draws VOCAB
    found = np.asarray(count_tokens(counts, seats, tokens))
    assert found[1, 4] == IN_PROMPT + 2
    assert found.sum() == IN_PROMPT + 2


def test_shapes_are_those_of_the_tables():
    tables = new_tables(3, VOCAB, jax.local_devices()[0])
    shapes = table_shapes(3, VOCAB, tables.counts.sharding)
    for array, shape in zip(tables, shapes, strict=True):
        assert (array.shape, array.dtype) == (shape.shape, shape.dtype)
        assert not np.asarray(array).any()
