"""Which step is read when, on a runner that says how many programs it compiled."""

import random

import numpy as np
import pytest

from jengine import SamplingParams
from jengine.recording import record
from jengine.structured_output.constraint import BadWords

PROMPTS = [[1, 2, 3], [4] * 9, [1, 2, 3, 5, 6], [7], [1, 2, 3, 5, 9, 9, 9]]


class CompilingRunner:
    """Passes plans on; counts a program for each size of step that is new."""

    def __init__(self, inner):
        self._inner = inner
        self._sizes = set()
        self.calls = []

    @property
    def num_programs(self):
        return len(self._sizes)

    def dispatch(self, plan, *, awaits_masks=False):
        is_new = plan.num_tokens not in self._sizes
        self._sizes.add(plan.num_tokens)
        self.calls.append("compile" if is_new else "dispatch")
        return self._inner.dispatch(plan, awaits_masks=awaits_masks)

    def collect(self, handle):
        self.calls.append("collect")
        return self._inner.collect(handle)

    def draw(self, handle, constraints):
        return self._inner.draw(handle, constraints)

    def reset(self):
        self._inner.reset()


def compiling(engine):
    engine.runner = CompilingRunner(engine.runner)
    return engine


def params(count, **options):
    return SamplingParams(temperature=0, max_tokens=count, **options)


def run(engine, steps=1000):
    """The last output of each request."""
    found = {}
    while engine.has_unfinished_requests():
        steps -= 1
        assert steps > 0
        found |= {output.request_id: output for output in engine.step()}
        engine.check_invariants()
    return found


def params_of(index):
    """Parameters of one of `PROMPTS`, with stops that some tokens meet."""
    stops = [(index * 7 + 3) % 26, (index * 5 + 11) % 26]
    return params(20, stop_token_ids=stops)


def add_all(engine):
    for index, prompt in enumerate(PROMPTS):
        engine.add_request(str(index), prompt, params_of(index))


@pytest.mark.parametrize(
    ("ahead", "calls"),
    [
        # The first token is read before the second step is compiled; once both sizes
        # are known, one step ahead.
        (
            True,
            "compile collect compile collect dispatch dispatch collect collect",
        ),
        (False, "compile collect compile collect dispatch collect dispatch collect"),
    ],
)
def test_no_token_waits_for_the_program_of_the_next(make_engine, ahead, calls):
    engine = compiling(make_engine(ahead=ahead))
    engine.add_request("a", [1, 2, 3], params(4, ignore_eos=True))
    run(engine)
    assert " ".join(engine.runner.calls) == calls


@pytest.mark.parametrize("num_blocks", [10, 40])
def test_plans_and_outputs_do_not_depend_on_what_is_compiled(
    make_engine, expected_ids, num_blocks
):
    runs, found = [], []
    for engine in (make_engine(num_blocks=num_blocks), None):
        engine = engine or compiling(make_engine(num_blocks=num_blocks))
        with record(engine) as recorder:
            add_all(engine)
            found.append(run(engine))
        runs.append(recorder.run)
        assert engine.stats.num_blocks_in_use == 0
    assert runs[0].first_difference(runs[1]) is None
    assert "collect compile" in " ".join(engine.runner.calls)
    for index, prompt in enumerate(PROMPTS):
        expected = expected_ids(prompt, params_of(index))
        for outputs in found:
            assert outputs[str(index)].outputs[0].token_ids == expected


@pytest.mark.parametrize("num_blocks", [10, 40])
def test_each_step_brings_what_it_brings_without_compiling(make_engine, num_blocks):
    """A decode that runs never misses a step, whatever has to be compiled."""
    traces = []
    for compiles in (False, True):
        engine = make_engine(num_blocks=num_blocks)
        add_all(compiling(engine) if compiles else engine)
        trace = []
        while engine.has_unfinished_requests():
            outputs = engine.step()
            trace.append([(o.request_id, o.outputs[0].token_ids) for o in outputs])
        traces.append(trace)
    assert traces[0] == traces[1]


@pytest.mark.parametrize("aborted_after", range(1, 6))
def test_a_plan_that_waits_does_no_harm_to_aborted_requests(
    make_engine, expected_ids, aborted_after
):
    engine = compiling(make_engine())
    engine.add_request("a", PROMPTS[0], params(9, ignore_eos=True))
    engine.add_request("b", PROMPTS[1], params(9, ignore_eos=True))
    for _ in range(aborted_after):
        engine.step()
    engine.abort_request("a")
    engine.add_request("c", PROMPTS[2], params(9, ignore_eos=True))
    found = run(engine)
    assert set(found) == {"b", "c"}
    for name, prompt in (("b", PROMPTS[1]), ("c", PROMPTS[2])):
        expected = expected_ids(prompt, params(9, ignore_eos=True))
        assert found[name].outputs[0].token_ids == expected


@pytest.mark.parametrize("length", range(1, 9))
def test_what_the_prefix_cache_counts_on_is_written(make_engine, expected_ids, length):
    """The last request ends while a plan waits, which was to fill its block."""
    engine = compiling(make_engine())
    prompt = [3, 4, 7, 1, 9, 2, 5, 8][:length]
    (first,) = expected_ids(prompt, params(1))
    engine.add_request("a", prompt, params(5, stop_token_ids=[first]))
    run(engine)
    longer = [*prompt, first, 5, 6]
    engine.add_request("b", longer, params(6, ignore_eos=True))
    found = run(engine)["b"]  # the runner checks each prefix that is hit
    expected = expected_ids(longer, params(6, ignore_eos=True))
    assert found.outputs[0].token_ids == expected
    assert found.num_cached_tokens == (length + 1) // 4 * 4


@pytest.mark.parametrize("aborted_after", range(1, 5))
def test_what_waits_does_no_harm_when_all_are_aborted(
    make_engine, expected_ids, aborted_after
):
    engine = compiling(make_engine())
    engine.add_request("a", PROMPTS[0], params(9, ignore_eos=True))
    for _ in range(aborted_after):
        engine.step()
    engine.abort_request("a")
    assert not engine.has_unfinished_requests()
    assert engine.reset_prefix_cache()
    engine.add_request("b", PROMPTS[4], params(9, ignore_eos=True))
    expected = expected_ids(PROMPTS[4], params(9, ignore_eos=True))
    assert run(engine)["b"].outputs[0].token_ids == expected


def test_an_interrupted_step_leaves_no_plan_behind(make_engine, expected_ids):
    engine = compiling(make_engine())
    engine.add_request("a", PROMPTS[0], params(9, ignore_eos=True))
    engine.step()
    inner = engine.runner.collect

    def interrupted(handle):
        engine.runner.collect = inner
        raise KeyboardInterrupt

    engine.runner.collect = interrupted
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    expected = expected_ids(PROMPTS[0], params(9, ignore_eos=True))
    assert run(engine)["a"].outputs[0].token_ids == expected


def test_masks_of_a_plan_that_waited_know_every_token(make_engine, expected_ids):
    first, second = expected_ids(PROMPTS[0], params(2, ignore_eos=True))
    engine = compiling(make_engine())
    engine.add_request("a", PROMPTS[0], params(3, ignore_eos=True))
    # The second token may not follow the first: seen only when the first is known.
    request = engine._scheduler.get("a")
    engine._constraints.add(request, [BadWords([(first, second)])])
    masks, draw = [], engine.runner.draw

    def draw_by_masks(handle, constraints):
        mask = np.full(1, -1, np.int32)
        for constraint in constraints[0]:
            constraint.restrict(mask)
        masks.append(int(mask[0]))
        return draw(handle, constraints)

    engine.runner.draw = draw_by_masks
    run(engine)
    assert masks == [-1, ~(1 << second), -1]


class FlightyRunner(CompilingRunner):
    """Compiles now and then, whatever the size of the step."""

    def __init__(self, inner, rng, probability):
        super().__init__(inner)
        self._rng, self._probability = rng, probability
        self._count = 0

    @property
    def num_programs(self):
        return self._count

    def dispatch(self, plan, *, awaits_masks=False):
        self._count += self._rng.random() < self._probability
        return self._inner.dispatch(plan, awaits_masks=awaits_masks)


def random_request(rng, known):
    """A prompt, often one that goes on from an earlier text, and its parameters."""
    start = [rng.randrange(26) for _ in range(rng.randint(1, 9))]
    if known and rng.random() < 0.7:
        start = rng.choice(known)
    prompt = [*start, *(rng.randrange(26) for _ in range(rng.randint(0, 3)))][:14]
    stops = rng.sample(range(26), rng.choice([0, 8]))
    return prompt, params(rng.randint(1, 9), stop_token_ids=stops)


@pytest.mark.parametrize("seed", range(40))
def test_random_traffic_where_any_step_may_have_been_compiled(
    make_engine, expected_ids, seed
):
    rng = random.Random(seed)
    blocks, policy = rng.choice([9, 12, 40]), rng.choice(["fcfs", "priority"])
    engine = make_engine(num_blocks=blocks, seqs=rng.choice([2, 5]), policy=policy)
    engine.runner = FlightyRunner(engine.runner, rng, rng.choice([0.2, 0.5, 1]))
    live, texts = {}, []

    def step():
        for output in engine.step():
            if output.finished:
                prompt, wanted = live.pop(output.request_id)
                ids = output.outputs[0].token_ids
                assert ids == expected_ids(prompt, wanted)
                texts.append([*prompt, *ids])
        engine.check_invariants()

    for number in range(80):
        draw = rng.random()
        if draw < 0.25:
            name = f"r{number}"
            live[name] = random_request(rng, texts)
            engine.add_request(name, *live[name], priority=rng.randint(0, 2))
        elif draw < 0.3 and live:
            name = rng.choice(list(live))
            del live[name]
            engine.abort_request(name)
        elif draw < 0.34:
            engine.reset_prefix_cache()
        else:
            step()
    for _ in range(1000):
        if engine.has_unfinished_requests():
            step()
    assert not live
    assert engine.stats.num_blocks_in_use == 0
