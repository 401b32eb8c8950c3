"""The loop of the engine, on a runner without a model whose tokens are known."""

import random

import pytest

from jengine import RequestOutputKind, SamplingParams
from jengine.core.stats import SchedulerStats
from jengine.errors import InvalidValueError, PromptError, SamplingParamsError

PROMPTS = [[1, 2, 3], [4] * 9, [1, 2, 3, 5, 6], [7], [1, 2, 3, 5, 9, 9, 9]]


def greedy(count=6, **options):
    return SamplingParams(temperature=0, max_tokens=count, **options)


def step_all(engine):
    """Step to the end; every output by request id."""
    found = {}
    for _ in range(1000):
        if not engine.has_unfinished_requests():
            return found
        for output in engine.step():
            found.setdefault(output.request_id, []).append(output)
        engine.check_invariants()
    raise AssertionError("the engine goes on for ever")


def last_ids(outputs):
    return {name: many[-1].outputs[0].token_ids for name, many in outputs.items()}


def is_idle(engine):
    stats = engine.stats
    return (stats.num_running, stats.num_waiting, stats.num_blocks_in_use) == (0, 0, 0)


def mixed_params(seed):
    """Parameters of each kind for each prompt, with stops that some tokens meet."""
    rng = random.Random(seed)
    return [
        SamplingParams(
            temperature=rng.choice([0, 1]),
            seed=rng.randrange(99),
            max_tokens=rng.randrange(1, 25),
            min_tokens=rng.choice([0, 1]),
            stop_token_ids=rng.sample(range(26), 2),
            logprobs=rng.choice([None, 0]),
        )
        for _ in PROMPTS
    ]


@pytest.mark.parametrize("ahead", [False, True])
def test_a_common_start_is_computed_by_those_who_begin_together(make_engine, ahead):
    engine = make_engine(ahead=ahead, num_blocks=400, seqs=16)
    common, own = [1, 2, 3, 4, 5, 6, 7, 8] * 4, 2
    for number in range(64):
        ids = [*common, number % 26, number // 26]
        engine.add_request(str(number), {"prompt_token_ids": ids}, greedy(1))
    step_all(engine)
    asked = 64 * (len(common) + own)
    # The budget of 16 tokens lets one compute it, and the others find it.
    assert engine.stats.num_scheduled_tokens == len(common) + 64 * own
    assert engine.stats.prefix_cache_hits == 63 * len(common)
    assert engine.stats.num_scheduled_tokens < asked / 5


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("num_blocks", [10, 60])
@pytest.mark.parametrize("ahead", [False, True])
def test_outputs_are_those_of_each_request_alone(
    make_engine, expected_ids, seed, num_blocks, ahead
):
    engine = make_engine(ahead=ahead, num_blocks=num_blocks)
    params = mixed_params(seed)
    for i, (prompt, one) in enumerate(zip(PROMPTS, params, strict=True)):
        engine.add_request(str(i), prompt, one)
        for _ in range(seed):  # they arrive together, or some steps apart
            engine.step()
    found = step_all(engine)
    for i, (prompt, one) in enumerate(zip(PROMPTS, params, strict=True)):
        if str(i) not in found:  # it ended in one of the steps above
            continue
        done = found[str(i)][-1].outputs[0]
        assert done.token_ids == expected_ids(prompt, one)
        assert (done.logprobs is None) == (one.logprobs is None)
        assert done.logprobs is None or len(done.logprobs) == len(done.token_ids)
    assert is_idle(engine)


def test_a_small_pool_preempts(make_engine):
    engine = make_engine(num_blocks=8)
    for i, prompt in enumerate(PROMPTS[:4]):
        engine.add_request(str(i), prompt, greedy(18))
    step_all(engine)
    assert engine.stats.num_preemptions > 0


@pytest.mark.parametrize(("ahead", "first"), [(False, 0), (True, 1)])
def test_one_step_ahead_reads_a_step_later_and_runs_no_more_steps(
    make_engine, ahead, first
):
    engine = make_engine(ahead=ahead)
    calls = []
    runner = engine.runner
    dispatch, collect = runner.dispatch, runner.collect
    runner.dispatch = lambda *a, **k: calls.append("dispatch") or dispatch(*a, **k)
    runner.collect = lambda handle: calls.append("collect") or collect(handle)
    engine.add_request("a", [1, 2, 3], greedy(3))
    trace = []
    while engine.has_unfinished_requests():
        trace.append(len(engine.step()))
    assert trace == [0] * first + [1, 1, 1]
    order = ["dispatch", "collect"] * 3
    if ahead:  # lengths are known ahead: no fourth step is dispatched
        order = ["dispatch", "dispatch", "collect", "dispatch", "collect", "collect"]
    assert calls == order
    assert engine.stats.num_scheduled_tokens == 3 + 2


def test_an_end_token_is_learnt_a_step_late_and_costs_one_token(
    make_engine, expected_ids
):
    ids = expected_ids([1, 2, 3], greedy(6))
    tokens_run = []
    for ahead in (False, True):
        engine = make_engine(ahead=ahead)
        engine.add_request("a", [1, 2, 3], greedy(6, stop_token_ids=[ids[2]]))
        found = step_all(engine)
        assert last_ids(found) == {"a": ids[: ids.index(ids[2]) + 1]}
        tokens_run.append(engine.stats.num_scheduled_tokens)
        assert is_idle(engine)
    assert tokens_run[1] == tokens_run[0] + 1


@pytest.mark.parametrize("ahead", [False, True])
def test_output_kinds(make_engine, ahead):
    engine = make_engine(ahead=ahead)
    for kind in RequestOutputKind:
        params = greedy(7, output_kind=kind, logprobs=0)
        engine.add_request(kind.name, "abc", params)
    found = step_all(engine)
    whole = found["FINAL_ONLY"][0].outputs[0]
    assert len(found["FINAL_ONLY"]) == 1
    assert (len(whole.token_ids), len(whole.text)) == (7, 7)
    cumulative = [o.outputs[0] for o in found["CUMULATIVE"]]
    deltas = [o.outputs[0] for o in found["DELTA"]]
    assert len(cumulative) == len(deltas) == 7
    for i, (so_far, delta) in enumerate(zip(cumulative, deltas, strict=True)):
        assert so_far.token_ids == whole.token_ids[: i + 1]
        assert so_far.text == whole.text[: i + 1]
        assert so_far.logprobs == whole.logprobs[: i + 1]
        assert delta.token_ids == whole.token_ids[i : i + 1]
        assert delta.text == whole.text[i]
        assert delta.logprobs == whole.logprobs[i : i + 1]
        assert so_far.cumulative_logprob == delta.cumulative_logprob
    for many in found.values():
        assert [o.finished for o in many] == [False] * (len(many) - 1) + [True]
        assert {o.prompt for o in many} == {"abc"}


def test_outputs_belong_to_their_receiver(make_engine):
    engine = make_engine()
    engine.add_request("a", [1, 2, 3], greedy(5, logprobs=0))
    sizes = []
    while engine.has_unfinished_requests():
        for output in engine.step():
            done = output.outputs[0]
            sizes.append((len(done.token_ids), len(done.logprobs)))
            done.token_ids.append(-1)
            done.logprobs.clear()
            output.prompt_token_ids.clear()
    assert sizes == [(n, n) for n in range(1, 6)]


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("num_steps", range(7))
def test_abort_in_every_state_leaves_the_others_alone(
    make_engine, expected_ids, ahead, num_steps
):
    engine = make_engine(ahead=ahead, num_blocks=8, seqs=2)
    for i, prompt in enumerate(PROMPTS[:4]):
        engine.add_request(str(i), prompt, greedy(12))
    ended = set()
    for _ in range(num_steps):
        ended |= {o.request_id for o in engine.step() if o.finished}
    engine.abort_request(["1", "unknown", "1"])
    engine.check_invariants()
    assert engine.get_num_unfinished_requests() == 3 - len(ended)
    found = step_all(engine)
    assert "1" not in found
    for i in {0, 2, 3}:
        assert last_ids(found)[str(i)] == expected_ids(PROMPTS[i], greedy(12))
    assert is_idle(engine)


@pytest.mark.parametrize("ahead", [False, True])
def test_abort_of_a_preempted_request(make_engine, expected_ids, ahead):
    engine = make_engine(ahead=ahead, num_blocks=8)
    for name, prompt in zip("abc", PROMPTS, strict=False):
        engine.add_request(name, prompt, greedy(18))
    while not engine.stats.num_preemptions:
        engine.step()
    engine.abort_request("c")
    engine.check_invariants()
    found = step_all(engine)
    assert "c" not in found
    for name, prompt in zip("ab", PROMPTS, strict=False):
        assert last_ids(found)[name] == expected_ids(prompt, greedy(18))
    assert is_idle(engine)


def test_ids_that_are_not_live_are_ignored(make_engine):
    engine = make_engine()
    engine.abort_request("never")
    engine.abort_request([])
    engine.abort_request(name for name in ("x", "y"))
    engine.add_request("a", [1], greedy(2))
    step_all(engine)
    engine.abort_request("a")
    assert not engine.has_unfinished_requests()


@pytest.mark.parametrize("ahead", [False, True])
def test_an_id_used_again_gets_nothing_of_its_predecessor(
    make_engine, expected_ids, ahead
):
    for num_steps in range(1, 5):
        engine = make_engine(ahead=ahead)
        engine.add_request("a", [1, 2, 3], greedy(9))
        for _ in range(num_steps):
            engine.step()
        engine.abort_request("a")
        engine.add_request("a", [8, 8], greedy(4))
        found = step_all(engine)["a"]
        assert [len(o.outputs[0].token_ids) for o in found] == [1, 2, 3, 4]
        assert found[-1].outputs[0].token_ids == expected_ids([8, 8], greedy(4))


def test_outputs_that_nobody_takes_come_with_the_next_step(make_engine):
    engine = make_engine(ahead=False)
    engine.add_request("a", [1, 2, 3], greedy(1))
    engine.advance()
    assert engine.has_unfinished_requests()
    assert engine.get_num_unfinished_requests() == 0
    engine.add_request("b", [4], greedy(1))
    assert [o.request_id for o in engine.step()] == ["a", "b"]
    assert not engine.has_unfinished_requests()


def test_each_caller_takes_its_own_outputs(make_engine):
    engine = make_engine(ahead=False)
    for name in "abc":
        engine.add_request(name, [1, 2, 3], greedy(1))
    engine.advance()
    assert engine.take(()) == []
    assert [o.request_id for o in engine.take({"c", "a"})] == ["a", "c"]
    assert engine.take({"c", "a"}) == []
    assert [o.request_id for o in engine.take("b")] == ["b"]
    assert not engine.has_unfinished_requests()


def test_abort_drops_what_was_not_delivered(make_engine):
    engine = make_engine(ahead=False)
    for name in "ab":
        engine.add_request(name, [1, 2, 3], greedy(1))
    engine.advance()
    engine.abort_request("a")
    assert [o.request_id for o in engine.step()] == ["b"]


def test_stop_strings_end_requests_and_free_their_blocks(make_engine, expected_ids):
    ids = expected_ids([0, 1, 2], greedy(10))
    text = "".join(chr(97 + token) for token in ids)
    for ahead in (False, True):
        engine = make_engine(ahead=ahead)
        engine.add_request("a", "abc", greedy(10, stop=[text[3:5]]))
        while not (found := engine.step()) or not found[-1].finished:
            pass
        done = found[-1].outputs[0]
        assert (done.text, done.stop_reason) == (text[:3], text[3:5])
        assert (done.finish_reason, done.token_ids) == ("stop", ids[:5])
        assert is_idle(engine)
        assert not engine.has_unfinished_requests()


@pytest.mark.parametrize("ahead", [False, True])
def test_nan_ends_its_own_request_only(make_engine, expected_ids, ahead):
    engine = make_engine(ahead=ahead, poison=frozenset({25}))
    engine.add_request("bad", [1, 25, 3], greedy(5))
    engine.add_request("good", [1, 2, 3], greedy(5, stop_token_ids=[25]))
    found = step_all(engine)
    done = found["bad"][-1].outputs[0]
    assert (done.token_ids, done.finish_reason) == ([], "error")
    params = greedy(5, stop_token_ids=[25])
    assert last_ids(found)["good"] == expected_ids([1, 2, 3], params)


def test_priority_decides_who_runs_first(make_engine):
    engine = make_engine(policy="priority", seqs=1)
    for name, priority in [("low", 5), ("high", -1), ("middle", 0)]:
        engine.add_request(name, [1, 2], greedy(2), priority=priority)
    ends = [
        output.request_id
        for _ in range(20)
        for output in engine.step()
        if output.finished
    ]
    assert ends == ["high", "middle", "low"]


def test_stats(make_engine):
    engine = make_engine(ahead=False)
    empty = SchedulerStats(0, 0, 0, 0, 0, 0, 0, 0, 0, 39)
    assert engine.stats == empty
    engine.add_request("a", [1, 2, 3, 4, 5], greedy(2))
    assert engine.stats == empty._replace(num_waiting=1)
    engine.step()
    assert engine.stats == empty._replace(
        num_steps=1,
        num_scheduled_tokens=5,
        prefix_cache_queries=5,
        num_running=1,
        num_blocks_in_use=2,
        num_blocks_cached=1,
    )
    assert not engine.reset_prefix_cache()
    engine.step()
    assert engine.stats.num_scheduled_tokens == 6
    engine.add_request("b", [1, 2, 3, 4, 5], greedy(1))
    (output,) = engine.step()
    assert output.num_cached_tokens == engine.stats.prefix_cache_hits == 4
    assert engine.reset_prefix_cache()
    assert engine.stats.num_blocks_cached == 0


def test_an_idle_engine_steps_without_effect(make_engine):
    engine = make_engine()
    assert [engine.step() for _ in range(3)] == [[], [], []]
    assert engine.stats.num_steps == 0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("", [1], greedy()), InvalidValueError),
        ((7, [1], greedy()), InvalidValueError),
        (("a", [1], greedy()), InvalidValueError),
        (("b", [1], None), InvalidValueError),
        (("b", [1], {"temperature": 0}), InvalidValueError),
        (("b", [], greedy()), PromptError),
        (("b", [26], greedy()), PromptError),
        (("b", [1] * 64, greedy()), PromptError),
        (("b", [1], greedy(logprobs=6)), SamplingParamsError),
        (("b", [1], greedy(stop_token_ids=[26])), SamplingParamsError),
    ],
)
def test_what_cannot_be_run_is_refused_and_leaves_no_trace(
    make_engine, expected_ids, arguments, error
):
    engine = make_engine()
    engine.add_request("a", [1, 2, 3], greedy())
    with pytest.raises(error):
        engine.add_request(*arguments)
    with pytest.raises(InvalidValueError, match="priority"):
        engine.add_request("c", [1], greedy(), priority=1.5)
    assert engine.get_num_unfinished_requests() == 1
    assert last_ids(step_all(engine)) == {"a": expected_ids([1, 2, 3], greedy())}


def test_a_live_id_costs_the_request_that_has_it_nothing(make_engine, expected_ids):
    engine = make_engine()
    engine.add_request("a", [1, 2, 3], greedy())
    outputs = []
    for _ in range(6):
        with pytest.raises(InvalidValueError, match="no live request has"):
            engine.add_request("a", [9], greedy())
        outputs += engine.step()
    outputs += engine.step()
    assert outputs[-1].finished
    assert outputs[-1].outputs[0].token_ids == expected_ids([1, 2, 3], greedy())


def test_parts_can_be_reached(make_engine):
    engine = make_engine()
    assert engine.runner.vocab_size == 26
    assert engine.inputs.max_total_tokens == 64
    assert engine.tokenizer.decode([0, 1]) == "ab"


def test_the_cache_can_be_looked_at_and_the_runner_be_replaced(make_engine):
    engine = make_engine()
    assert engine.cache.pool.num_usable == engine.stats.num_blocks
    other = make_engine().runner
    engine.runner = other
    assert engine.runner is other
