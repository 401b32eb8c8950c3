"""The compiled functions, against each other and against transformers' record."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jengine.runner.bucket import StepBucket
from jengine.runner.layout import SamplingColumn, forward_layout
from jengine.runner.sample import SampleMode
from jengine.runner.step import (
    _wanted_rows,
    decode_step,
    forward,
    sample,
    unpack_inputs,
)

SINGLE = StepBucket(True, 2, 2, 6)
MIXED = StepBucket(False, 16, 4, 6)
ONE = int(np.array(1.0, np.float32).view(np.int32))
VOCAB_SIZE = 320


def pack(bucket, rows):
    """Pack rows of (token ids, tokens computed before, block ids), written out."""
    layout = forward_layout(bucket)
    out = np.zeros(layout.size, np.int32)
    starts = np.cumsum([0, *[len(ids) for ids, _, _ in rows]])
    out[: starts[-1]] = np.concatenate([ids for ids, _, _ in rows])
    padded = [*starts, *[starts[-1]] * (bucket.rows - len(rows))]
    out[layout.query_start_loc] = padded
    for row, (ids, before, blocks) in enumerate(rows):
        out[layout.seq_lens][row] = before + len(ids)
        out[layout.logits_indices][row] = starts[row + 1] - 1
        table = out[layout.block_tables].reshape(bucket.rows, -1)
        table[row, : len(blocks)] = blocks
    if bucket.single_token_rows:
        out[layout.logits_indices] = np.arange(bucket.rows)
    return jnp.asarray(out)


def sampling(*rows, lines=2):
    """Rows of (seat, position, temperature, seed); padding has a seat past the end."""
    out = np.zeros((lines, len(SamplingColumn)), np.int32)
    out[:, SamplingColumn.SEAT] = 3
    out[:, SamplingColumn.TEMPERATURE : SamplingColumn.MIN_P] = ONE
    for line, (seat, position, temperature, seed) in enumerate(rows):
        bits = int(np.array(temperature, np.float32).view(np.int32))
        out[line, : SamplingColumn.TOP_K] = (seat, position, seed, 0)
        out[line, SamplingColumn.TEMPERATURE] = bits
    return jnp.asarray(out)


@functools.cache
def compiled(function, *static):
    return jax.jit(functools.partial(function, *static))


def tree_equal(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), atol=1e-6)


@pytest.fixture(scope="module")
def prefilled(loaded, f2_greedy):
    """Two prompts in the cache, and the hidden states of their last tokens."""
    first, second = f2_greedy[8].prompt, f2_greedy[4].prompt
    ints = pack(MIXED, [(first, 0, [3, 1, 5]), (second, 0, [2, 7])])
    run = compiled(forward, loaded.context, MIXED)
    return run(loaded.params, loaded.new_cache(), loaded.last_token(), ints)


def test_the_first_tokens_are_those_of_transformers(loaded, prefilled, f2_greedy):
    _, hidden, _ = prefilled
    head = loaded.params["lm_head"]["weight"]
    mode = SampleMode(num_logprobs=2)
    run = compiled(sample, mode)
    packed = sampling((2, 9, 0, 0), (0, 5, 0, 0))
    last, out, _ = run(head, loaded.last_token(7, 8, 9), hidden, packed)
    ids = [f2_greedy[8].ids[0], f2_greedy[4].ids[0]]
    out = np.asarray(out)
    assert out[:, 0].tolist() == ids
    assert last.tolist() == [ids[1], 8, ids[0]]  # each at its seat, others as before
    assert out[:, 1].tolist() == [1, 1]  # rank
    assert out[:, 3].tolist() == ids  # the best id is the greedy one
    values = out[:, 2].copy().view(np.float32)
    wanted = [f2_greedy[8].first_logprob, f2_greedy[4].first_logprob]
    np.testing.assert_allclose(values, wanted, atol=1e-4)
    assert (out[:, 5] == out[:, 2]).all()  # bits of the best value


def test_hidden_states_are_padded_with_zeros_to_the_rows_of_the_engine(prefilled):
    _, hidden, _ = prefilled
    assert hidden.shape == (4, 64)
    assert np.abs(np.asarray(hidden[:2])).max() > 0.1


def test_hidden_states_of_all_tokens_come_back_too(prefilled):
    _, hidden, states = prefilled
    assert states.shape == (MIXED.tokens, 64)
    np.testing.assert_array_equal(states[np.array([8, 13])], hidden[:2])


@pytest.mark.parametrize("single", [False, True])
def test_only_wanted_rows_are_sampled_and_one_a_row_needs_no_gather(loaded, single):
    bucket = StepBucket(single, 4, 4, 1)
    inputs = unpack_inputs(
        loaded.context,
        bucket,
        jnp.zeros(forward_layout(bucket).size, jnp.int32),
        loaded.last_token(),
    )
    inputs = dataclasses.replace(inputs, logits_indices=jnp.asarray([3, 1, 0, 0]))
    states = jnp.arange(8.0).reshape(4, 2)
    wanted = states if single else states[jnp.asarray([3, 1, 0, 0])]
    np.testing.assert_array_equal(_wanted_rows(states, inputs), wanted)
    traced = str(jax.make_jaxpr(lambda x: _wanted_rows(x, inputs))(states))
    assert ("gather" in traced) != single


def test_a_smaller_bucket_pads_its_hidden_states(loaded, prefilled):
    kv, *_ = prefilled
    run = compiled(forward, loaded.context, SINGLE)
    ints = pack(SINGLE, [([11], 9, [3, 1, 5]), ([12], 5, [2, 7])])
    _, hidden, _ = run(loaded.params, kv, loaded.last_token(), ints)
    assert hidden.shape == (4, 64)
    assert not np.asarray(hidden[2:]).any()
    assert np.asarray(hidden[:2]).any(axis=1).all()


@pytest.mark.parametrize("random", [False, True])
def test_one_program_gives_what_two_give(loaded, prefilled, random):
    kv, *_ = prefilled
    mode = SampleMode(random=random)
    last_token = loaded.last_token(21, 22, 23)
    temperature = 1.0 if random else 0.0
    packed = sampling((0, 10, temperature, 5), (2, 6, temperature, 6))
    ints = pack(SINGLE, [([-1], 9, [3, 1, 5]), ([12], 5, [2, 7])])
    together = compiled(decode_step, loaded.context, SINGLE, mode)
    kv_one, last_one, out_one = together(loaded.params, kv, last_token, ints, packed)
    alone = compiled(forward, loaded.context, SINGLE)
    kv_two, hidden, _ = alone(loaded.params, kv, last_token, ints)
    head = loaded.params["lm_head"]["weight"]
    last_two, out_two, _ = compiled(sample, mode)(head, last_token, hidden, packed)
    assert out_one.tolist() == out_two.tolist()
    assert last_one.tolist() == last_two.tolist()
    tree_equal(kv_one, kv_two)
    assert last_one.tolist() == [int(out_one[0, 0]), 22, int(out_one[1, 0])]


def test_a_carried_token_is_the_one_last_sampled_at_its_seat(loaded, prefilled):
    kv, *_ = prefilled
    run = compiled(forward, loaded.context, SINGLE)
    blocks = [([1], 9, [3, 1, 5]), ([1], 5, [2, 7])]
    results = []
    for ids in ([[40], [50]], [[-1], [-3]]):
        rows = [(i, before, b) for i, (_, before, b) in zip(ids, blocks, strict=True)]
        last_token = loaded.last_token(40, 7, 50)
        results.append(run(loaded.params, kv, last_token, pack(SINGLE, rows)))
    tree_equal(*results)
    other = run(loaded.params, kv, loaded.last_token(41, 7, 50), pack(SINGLE, rows))
    assert np.abs(np.asarray(other[1] - results[1][1])[0]).max() > 1e-3


def test_chunks_give_what_the_whole_gives(loaded, prefilled, f2_greedy):
    prompt = f2_greedy[8].prompt
    run = compiled(forward, loaded.context, MIXED)
    kv = loaded.new_cache()
    for start, end in [(0, 3), (3, 7), (7, 9)]:
        ints = pack(MIXED, [(prompt[start:end], start, [3, 1, 5])])
        kv, hidden, _ = run(loaded.params, kv, loaded.last_token(), ints)
    np.testing.assert_allclose(
        np.asarray(hidden[0]), np.asarray(prefilled[1][0]), atol=1e-5
    )
    blocks = jnp.asarray([3, 1])
    for ours, theirs in zip(kv.layers, prefilled[0].layers, strict=True):
        np.testing.assert_allclose(
            np.asarray(ours.keys[blocks]), np.asarray(theirs.keys[blocks]), atol=1e-5
        )


def test_padding_writes_nothing(loaded):
    marked = jax.tree.map(lambda leaf: leaf + 5, loaded.new_cache())
    run = compiled(forward, loaded.context, MIXED)
    ints = pack(MIXED, [([9, 9, 9, 9, 9, 9], 0, [3, 1])])
    kv, *_ = run(loaded.params, marked, loaded.last_token(), ints)
    for leaf in jax.tree.leaves(kv):
        touched = np.argwhere((np.asarray(leaf) != 5).any(axis=(1, 3)))
        assert touched.tolist() == [[1, 0], [1, 1], [3, 0], [3, 1], [3, 2], [3, 3]]


@pytest.mark.parametrize(("bucket", "padding"), [(SINGLE, 1), (MIXED, 15)])
def test_unpacking_makes_padding_harmless(loaded, bucket, padding):
    ints = pack(bucket, [([-2], 6, [4, 8])])
    run = compiled(unpack_inputs, loaded.context, bucket)
    inputs = run(ints, loaded.last_token(31, 32, 33))
    assert inputs.token_ids.tolist() == [32] + [0] * padding
    assert inputs.positions.tolist() == [6] + [0] * padding
    assert inputs.slot_mapping.tolist() == [8 * 4 + 2] + [9 * 4] * padding
    assert inputs.single_token_rows is bucket.single_token_rows
    rows = bucket.rows - 1
    assert inputs.seq_lens.tolist() == [7] + [0] * rows
    assert inputs.query_start_loc.tolist() == [0, 1] + [1] * rows
    assert inputs.block_tables.tolist() == [[4, 8, 0, 0, 0, 0]] + [[0] * 6] * rows


def test_padding_rows_sample_into_no_seat(loaded, prefilled):
    _, hidden, _ = prefilled
    head = loaded.params["lm_head"]["weight"]
    last_token = loaded.last_token(7, 8, 9)
    run = compiled(sample, SampleMode(num_logprobs=2))
    last, *_ = run(head, last_token, hidden, sampling(lines=2))
    assert last.tolist() == [7, 8, 9]


def test_logits_that_are_no_numbers_are_reported_and_leave_an_id(loaded, prefilled):
    _, hidden, _ = prefilled
    head = loaded.params["lm_head"]["weight"]
    run = compiled(sample, SampleMode(num_logprobs=2))
    spoilt = hidden.at[0].set(jnp.nan)
    packed = sampling((0, 9, 0, 0), (1, 5, 0, 0))
    last, out, _ = run(head, loaded.last_token(7, 8, 9), spoilt, packed)
    assert int(out[0, 0]) == VOCAB_SIZE
    assert 0 <= int(last[0]) < VOCAB_SIZE  # an index that the embedding has
    assert int(out[1, 0]) == int(last[1]) < VOCAB_SIZE


def test_a_mask_takes_ids_away(loaded, prefilled):
    _, hidden, _ = prefilled
    head = loaded.params["lm_head"]["weight"]
    packed = sampling((0, 9, 0, 0), (1, 5, 0, 0))
    free = compiled(sample, SampleMode())
    _, out, _ = free(head, loaded.last_token(), hidden, packed)
    best = out[:, 0].tolist()
    mask = np.full((2, VOCAB_SIZE // 32), -1, np.int32)
    mask[0, best[0] // 32] &= ~np.left_shift(np.int32(1), np.int32(best[0] % 32))
    masked = compiled(sample, SampleMode(masked=True, num_logprobs=2))
    _, out, _ = masked(head, loaded.last_token(), hidden, packed, jnp.asarray(mask))
    out = np.asarray(out)
    assert out[0, 0] != best[0]
    assert out[1, 0] == best[1]
    # Log-probabilities are those before the mask: the drawn id is the second best.
    assert out[:, 1].tolist() == [2, 1]
    assert out[0, 3:5].tolist() == [best[0], out[0, 0]]
