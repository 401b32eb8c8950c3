"""Programs are compiled once, ahead of use, and take only what they were made for."""

import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jengine.runner.bucket import StepBucket
from jengine.runner.layout import SamplingColumn, forward_layout
from jengine.runner.programs import DecodeKey, ForwardKey, ProgramStore, SampleKey
from jengine.runner.sample import SampleMode

BUCKET = StepBucket(True, 1, 1, 2)
FORWARD = ForwardKey(BUCKET)
SAMPLE = SampleKey(1, SampleMode())
DECODE = DecodeKey(BUCKET, SampleMode())
MASKED = SampleKey(2, SampleMode(masked=True, num_logprobs=1))


def make_store(loaded):
    return ProgramStore(
        loaded.context, loaded.params, loaded.new_cache(), loaded.last_token()
    )


@pytest.fixture(scope="module")
def store(loaded):
    store = make_store(loaded)
    store.compile_all([FORWARD, SAMPLE, DECODE, MASKED], lambda _: None)
    return store


def ints(bucket=BUCKET):
    return np.zeros(forward_layout(bucket).size, np.int32)


def packed(rows):
    return np.zeros((rows, len(SamplingColumn)), np.int32)


@pytest.fixture
def compiles():
    """The programs that XLA has compiled since the start of the test."""
    events: list[str] = []

    def listen(event, _duration, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield events
    jax.monitoring.unregister_event_duration_listener(listen)


def test_a_program_is_compiled_on_first_use_only(loaded, compiles, caplog):
    store = make_store(loaded)
    compiles.clear()
    assert store.num_compiled == 0
    with caplog.at_level(logging.INFO, "jengine"):
        program = store.get(SAMPLE)
        assert store.get(SAMPLE) is program
        assert store.get(SampleKey(1, SampleMode())) is program
    assert store.num_compiled == len(compiles) == 1
    assert [record.getMessage() for record in caplog.records] == [f"compiling {SAMPLE}"]


def test_compile_all_compiles_what_is_missing(loaded, compiles, caplog):
    store = make_store(loaded)
    kept = store.get(SAMPLE)
    compiles.clear()
    done = []
    keys = [SAMPLE, SampleKey(1, SampleMode(num_logprobs=1)), MASKED]
    with caplog.at_level(logging.INFO, "jengine"):
        store.compile_all(keys, done.append)
    assert set(done) == set(keys[1:])
    assert store.num_compiled == 3
    assert len(compiles) == 2
    assert store.get(SAMPLE) is kept
    store.compile_all(keys, done.append)
    assert len(done) == len(compiles) == 2
    for key in keys:
        store.get(key)
    assert len(compiles) == 2
    assert caplog.records == []  # nothing was compiled late


def test_an_error_while_compiling_reaches_the_caller(loaded):
    store = make_store(loaded)
    too_many = SampleKey(1, SampleMode(num_logprobs=321))
    with pytest.raises(ValueError, match="top_k"):
        store.compile_all([too_many], lambda _: None)
    assert store.num_compiled == 0


def test_programs_can_be_called_in_turn_without_compiling(loaded, store, compiles):
    params, kv, last = loaded.params, loaded.new_cache(), loaded.last_token()
    head = params["lm_head"]["weight"]
    kv, hidden, _ = store.get(FORWARD)(params, kv, last, ints())
    last, out, _ = store.get(SAMPLE)(head, last, hidden, packed(1))
    kv, last, out = store.get(DECODE)(params, kv, last, ints(), packed(1))
    assert out.shape == (1, 1)
    mask = np.full((2, 10), -1, np.int32)
    last, out, _ = store.get(MASKED)(head, last, hidden, packed(2), mask)
    assert out.shape == (2, 5)  # id, rank, value, one id, its value
    assert compiles == []


def test_cache_and_tokens_are_donated_and_parameters_are_not(loaded, store):
    params, kv, last = loaded.params, loaded.new_cache(), loaded.last_token()
    new_kv, hidden, _ = store.get(FORWARD)(params, kv, last, ints())
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(kv))
    assert not last.is_deleted()
    store.get(DECODE)(params, new_kv, last, ints(), packed(1))
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(new_kv))
    assert last.is_deleted()
    last = loaded.last_token()
    store.get(SAMPLE)(params["lm_head"]["weight"], last, hidden, packed(1))
    assert last.is_deleted()
    assert not hidden.is_deleted()
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(params))


@pytest.mark.parametrize(
    "wrong",
    [
        {"ints": ints(StepBucket(True, 2, 2, 2))},
        {"ints": ints().astype(np.float32)},
        {"last_token": jnp.zeros(4, jnp.int32)},
        {"packed": packed(2)},
    ],
    ids=["longer", "float32", "a seat too many", "a row too many"],
)
def test_another_shape_or_type_raises_instead_of_compiling(
    loaded, store, compiles, wrong
):
    right = {"ints": ints(), "last_token": loaded.last_token(), "packed": packed(1)}
    kv = loaded.new_cache()
    given = right | wrong
    compiles.clear()
    with pytest.raises(TypeError):
        store.get(DECODE)(
            loaded.params, kv, given["last_token"], given["ints"], given["packed"]
        )
    assert compiles == []
    # Nothing was donated to a call that did not happen.
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(kv))


def test_a_store_keeps_no_array(loaded):
    kv = loaded.new_cache()
    store = ProgramStore(loaded.context, loaded.params, kv, loaded.last_token())
    held = jax.tree.leaves(store._shapes)
    assert not any(isinstance(leaf, jax.Array) for leaf in held)


def test_keys_of_different_kinds_differ():
    keys = {FORWARD, SAMPLE, DECODE, MASKED, ForwardKey(BUCKET), DecodeKey(*DECODE)}
    assert len(keys) == 4


def test_a_program_bears_its_name(store):
    assert store.get(DECODE).as_text().startswith("HloModule jit_decode_r1_w2_greedy")
