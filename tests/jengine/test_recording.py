import asyncio
import json

import pytest

from jengine import AsyncLLM
from jengine.errors import InvalidValueError
from jengine.recording import RecordedRun, RecordingRunner, record
from jengine.sampling_params import SamplingParams


def play(engine, *prompts, max_tokens=4):
    for number, prompt in enumerate(prompts):
        params = SamplingParams(temperature=0, max_tokens=max_tokens)
        engine.add_request(str(number), {"prompt_token_ids": prompt}, params)
    while engine.has_unfinished_requests():
        engine.step()


@pytest.fixture(params=[True, False], ids=["ahead", "not ahead"])
def engine(request, make_engine):
    return make_engine(ahead=request.param)


def test_a_recording_holds_each_plan_that_ran_and_what_came_of_it(engine):
    with record(engine) as recorder:
        play(engine, [1, 2, 3, 4, 5], [6, 7])
    run = recorder.run
    assert sum(plan.num_tokens for plan in run.plans) == (
        engine.stats.num_scheduled_tokens
    )
    assert all(plan.rows for plan in run.plans)
    drawn = [len(ids) for result in run.results for ids in result.sampled]
    assert sum(drawn) == 8
    assert (run.block_size, run.num_blocks, run.prefix_caching) == (4, 40, True)


def test_nothing_is_recorded_outside_and_the_runner_is_back(engine):
    inner = engine.runner
    with record(engine) as recorder:
        assert isinstance(engine.runner, RecordingRunner)
        assert engine.runner.vocab_size == inner.vocab_size
    assert engine.runner is inner
    play(engine, [1, 2])
    assert recorder.run.plans == ()


def test_a_recording_that_breaks_off_gives_the_runner_back(engine):
    inner = engine.runner
    with pytest.raises(KeyError), record(engine):
        raise KeyError
    assert engine.runner is inner


def test_recording_changes_no_token(make_engine, expected_ids):
    engine = make_engine()
    params = SamplingParams(temperature=0, max_tokens=6)
    engine.add_request("0", {"prompt_token_ids": [3, 1, 4]}, params)
    found = []
    with record(engine):
        while engine.has_unfinished_requests():
            found += engine.step()
    assert found[-1].outputs[0].token_ids == expected_ids([3, 1, 4], params)


def test_equal_runs_are_equal_and_survive_json(make_engine):
    runs = []
    for _ in range(2):
        engine = make_engine()
        with record(engine) as recorder:
            play(engine, [1, 2, 3, 4, 5], [6, 7])
        runs.append(recorder.run)
    first, second = runs
    assert first == second
    assert first.first_difference(second) is None
    assert RecordedRun.from_json(json.loads(json.dumps(first.to_json()))) == first


def test_the_first_step_that_differs_is_found(make_engine):
    runs = []
    for max_tokens in (4, 6):
        engine = make_engine(ahead=False)
        with record(engine) as recorder:
            play(engine, [1, 2, 3], max_tokens=max_tokens)
        runs.append(recorder.run)
    first, longer = runs
    # Prompt and three tokens are the same steps; then one run is over.
    assert first.first_difference(longer) == longer.first_difference(first) == 4


def test_a_record_of_another_schema_is_refused(make_engine):
    engine = make_engine()
    with record(engine) as recorder:
        play(engine, [1])
    value = recorder.run.to_json()
    value["plans"][0]["schema"] = 0
    with pytest.raises(ValueError, match="schema 0"):
        RecordedRun.from_json(value)


@pytest.mark.parametrize("make", [AsyncLLM.from_engine, lambda _: None])
def test_what_cannot_be_recorded_says_what_can(make_engine, make):
    llm = make(make_engine())
    with pytest.raises(InvalidValueError, match="allowed: an LLM or an LLMEngine"):
        record(llm).__enter__()
    if llm is not None:
        llm.shutdown()


def test_an_engine_is_recorded_before_its_thread_takes_it(make_engine):
    engine = make_engine()

    async def ask(llm):
        prompt = {"prompt_token_ids": [1, 2]}
        params = SamplingParams(temperature=0, max_tokens=2)
        return [output async for output in llm.generate(prompt, params)]

    with record(engine) as recorder, AsyncLLM.from_engine(engine) as llm:
        asyncio.run(ask(llm))
    assert recorder.run.plans


def test_a_reset_reaches_the_runner(engine):
    play(engine, [1, 2])
    with record(engine):
        engine.runner.reset()
    assert not any(engine.runner.cache)
