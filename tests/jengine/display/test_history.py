import random

import pytest

from jengine.display.history import pool_states, state_of
from jengine.recording import record
from jengine.sampling_params import SamplingParams


def random_prompts(rng):
    """Prompts that share starts, of which some fill their last block."""
    common = [rng.randrange(20) for _ in range(12)]
    return {
        str(number): common[: rng.choice([0, 4, 5, 8, 12])]
        + [rng.randrange(20) for _ in range(rng.randint(1, 9))]
        for number in range(rng.randint(2, 7))
    }


@pytest.mark.parametrize("seed", range(40))
def test_the_fold_over_plans_is_what_the_pool_says(play, seed):
    rng = random.Random(seed)
    seen = []

    def watch(scheduler):
        seen.append(state_of(scheduler.cache))

    run, _ = play(
        random_prompts(rng),
        num_new_tokens=rng.randint(1, 14),
        watch=watch,
        num_blocks=rng.choice([10, 14, 40]),
        enable_prefix_caching=rng.random() < 0.8,
        long_prefill_token_threshold=rng.choice([0, 5]),
    )
    states = list(pool_states(run))
    assert [state.tables for state in states] == [state.tables for state in seen]
    assert [state.kept for state in states] == [state.kept for state in seen]


@pytest.mark.parametrize("seed", range(10))
def test_so_it_is_one_step_ahead(make_engine, seed):
    rng = random.Random(seed)
    engine = make_engine(num_blocks=14)
    seen = []
    with record(engine) as recorder:
        dispatch = engine.runner._inner.dispatch
        engine.runner._inner.dispatch = lambda plan, **masks: (
            seen.append(state_of(engine.cache)) or dispatch(plan, **masks)
        )
        for name, prompt in random_prompts(rng).items():
            params = SamplingParams(temperature=0, max_tokens=rng.randint(1, 12))
            engine.add_request(name, {"prompt_token_ids": prompt}, params)
        while engine.has_unfinished_requests():
            engine.step()
    states = list(pool_states(recorder.run))
    assert [state.tables for state in states] == [state.tables for state in seen]
    assert [state.kept for state in states] == [state.kept for state in seen]


def test_owners_and_fill_of_shared_and_of_partly_filled_blocks(play):
    run, _ = play({"x": [1, 2, 3, 4, 5], "y": [1, 2, 3, 4, 9, 9]})
    first = next(pool_states(run))
    assert first.owners == {1: ("x", "y"), 2: ("x",), 3: ("y",)}
    assert first.fill == {1: 1.0, 2: 0.25, 3: 0.5}


def test_a_pool_as_it_stands_counts_its_blocks_as_full(play):
    _, scheduler = play({"x": [1, 2, 3, 4, 5]}, num_new_tokens=1)
    state = state_of(scheduler.cache)
    assert (state.step, state.tables, state.kept) == (None, {}, {1})
    assert state.fill == {}
