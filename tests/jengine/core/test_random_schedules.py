"""Random schedules: whatever happens around a request, its output is its own."""

import random

import pytest

from jengine.core.plan import SamplingOptions
from jengine.core.request import FinishReason, Request
from jengine.core.scheduler import Scheduler
from jengine.engine import LLMEngine
from jengine.input_processor import EndTokens, InputLimits, InputProcessor
from jengine.output_processor import OutputProcessor
from jengine.sampling_params import RequestOutputKind, SamplingParams
from jengine.testing.fake_runner import FakeRunner

NUM_PARTS = 8
VOCAB_SIZE = 12
EOS = 0
POISON = 11
MOST_TOKENS = 60


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("part", range(NUM_PARTS))
def test_outputs_do_not_depend_on_the_schedule(
    part, num_schedules, alone, check_scheduler, check_index
):
    preemptions = hits = 0
    for number in range(part, num_schedules, NUM_PARTS):
        case = Case(random.Random(number))
        try:
            if case.rng.random() < 0.25:
                run_engine(case, alone)
            else:
                run_scheduler(case, alone, check_scheduler, check_index)
        except BaseException as error:
            error.add_note(f"schedule {number}: {case.limits}, depth {case.depth}")
            raise
        preemptions += case.scheduler.stats.num_preemptions
        hits += case.scheduler.stats.prefix_cache_hits
    if num_schedules >= 1000:  # else the test would say little
        assert preemptions > 15
        assert hits > 100


class Case:
    """Random limits, and what has been asked of the scheduler so far."""

    def __init__(self, rng):
        self.rng = rng
        self.depth = rng.randint(0, 1)
        self.limits = random_limits(rng)
        self.scheduler = Scheduler(**self.limits)
        self.runner = FakeRunner(
            num_blocks=self.limits["num_blocks"],
            block_size=self.limits["block_size"],
            token_budget=self.limits["token_budget"],
            max_num_seqs=self.limits["max_num_seqs"],
            vocab_size=VOCAB_SIZE,
            poison=frozenset({POISON} if rng.random() < 0.2 else ()),
        )
        self.longest = min(MOST_TOKENS, self.scheduler.max_sequence_tokens)
        self.stems = [[rng.randrange(VOCAB_SIZE) for _ in range(40)] for _ in range(2)]
        self.arrivals = sorted(rng.randint(0, 12) for _ in range(rng.randint(1, 8)))
        self.requests = []

    def prompt(self):
        rng = self.rng
        length = rng.randint(1, self.longest - 1)
        shared = rng.choice([0, rng.randint(0, length), length])
        tail = [rng.randrange(VOCAB_SIZE) for _ in range(length)]
        return (rng.choice(self.stems)[:shared] + tail)[:length]

    @property
    def most_steps(self):
        """Steps that suffice: the first request in line runs in each of them.

        A new request may only take the lead under the priority policy. One step
        ahead, a preempted request waits for its token, and a last token for its
        step.
        """
        leaders = len(self.requests) if self.limits["policy"] == "priority" else 1
        tokens = sum(request.max_total_tokens for request in self.requests)
        return 14 + tokens * leaders * (1 + self.depth)


def random_limits(rng):
    block_size = rng.choice([1, 2, 3, 4, 8, 16])
    usable = rng.choice([1, 2, 4, 7, 12, 60])
    usable = max(usable, -(-4 // block_size))
    chunked = rng.random() < 0.7
    max_num_seqs = rng.randint(1, 6)
    budget = max_num_seqs + rng.choice([0, 1, 3, 8, 40])
    return {
        "num_blocks": usable + 1,
        "block_size": block_size,
        "token_budget": budget if chunked else max(budget, MOST_TOKENS),
        "max_num_seqs": max_num_seqs,
        "enable_prefix_caching": rng.random() < 0.7,
        "enable_chunked_prefill": chunked,
        "long_prefill_token_threshold": rng.choice([0, 0, 1, 2, 7]),
        "policy": rng.choice(["fcfs", "priority"]),
    }


def run_scheduler(case, alone, check_scheduler, check_index):
    rng, scheduler, runner = case.rng, case.scheduler, case.runner
    pending, delivered, live_finished = [], {}, []
    for now in range(10_000):
        for request in due_requests(case, now):
            scheduler.add(request)
        if case.requests and rng.random() < 0.03:
            victim = rng.choice(case.requests).request_id
            scheduler.finish([victim, "nobody", victim], FinishReason.ABORT)
        if not case.arrivals and not scheduler.num_unfinished:
            break
        plan = scheduler.schedule()
        if plan.rows:  # else its news come again with the next plan
            live_finished += plan.finished_ids
        assert plan.rows or pending or not scheduler.num_unfinished
        pending.append((plan, runner.dispatch(plan)))
        if len(pending) > case.depth:
            due, handle = pending.pop(0)
            for event in scheduler.update(due, runner.collect(handle)):
                delivered.setdefault(event.request.request_id, []).extend(
                    event.token_ids
                )
        assert now <= case.most_steps
        if now % 8 == 0:
            check_scheduler(scheduler)
            check_index(scheduler, runner, case.requests)
    check_scheduler(scheduler)
    check_index(scheduler, runner, case.requests)
    assert scheduler.stats.num_blocks_in_use == 0
    assert scheduler.stats.num_running == scheduler.stats.num_waiting == 0
    live_finished += scheduler.schedule().finished_ids
    assert sorted(live_finished) == sorted(r.request_id for r in case.requests)
    for request in case.requests:
        output = request.token_ids[request.num_prompt_tokens :]
        assert delivered.get(request.request_id, []) == output
        compare(
            alone(request, vocab_size=VOCAB_SIZE, poison=runner._poison),
            (output, request.finish_reason, request.stop_reason),
        )


def compare(expected, found):
    output, reason, stop_reason = found
    if reason == "abort":
        assert output == expected[0][: len(output)]
    else:
        assert (output, reason, stop_reason) == expected


def due_requests(case, now):
    while case.arrivals and case.arrivals[0] <= now:
        case.arrivals.pop(0)
        request = random_request(case)
        case.requests.append(request)
        yield request


def random_request(case):
    rng, prompt = case.rng, case.prompt()
    most = min(case.longest, len(prompt) + rng.choice([1, 2, 10, 30]))
    stop_ids = frozenset(rng.sample(range(1, VOCAB_SIZE), rng.choice([0, 0, 1])))
    eos = rng.choice([None, EOS])
    ends = stop_ids | ({EOS} if eos is not None else set())
    return Request(
        f"r{len(case.requests)}",
        prompt,
        max_total_tokens=max(most, len(prompt) + 1),
        options=SamplingOptions(
            temperature=rng.choice([0.0, 1.0]),
            seed=rng.randrange(2**64),
            stops_from=len(prompt) + rng.choice([0, 0, 3]),
            stop_ids=tuple(sorted(ends)),
        ),
        eos_token_id=eos,
        stop_token_ids=stop_ids,
        priority=rng.randint(-1, 1),
        arrival=len(case.requests),
        cache_salt=rng.choice([None, None, "salt"]),
    )


class Interrupted(BaseException):
    """Stands for a KeyboardInterrupt that strikes inside a step."""


class InterruptedRunner:
    """Breaks off now and then, before or after the inner runner has worked."""

    def __init__(self, inner, rng, chance):
        self._inner, self._rng, self._chance = inner, rng, chance

    def dispatch(self, plan, *, awaits_masks):
        return self._maybe(self._inner.dispatch, plan, awaits_masks=awaits_masks)

    def draw(self, handle, constraints):
        return self._maybe(self._inner.draw, handle, constraints)

    def collect(self, handle):
        return self._maybe(self._inner.collect, handle)

    def reset(self):
        self._inner.reset()

    def _maybe(self, call, *arguments, **options):
        strikes = self._rng.random() < self._chance
        if strikes and self._rng.random() < 0.5:
            raise Interrupted
        result = call(*arguments, **options)
        if strikes:
            raise Interrupted
        return result


def run_engine(case, alone):
    rng, scheduler = case.rng, case.scheduler
    limits = InputLimits(VOCAB_SIZE, case.longest, case.longest, 5, seed=0)
    inputs = InputProcessor(limits, EndTokens(EOS, frozenset({1})), None)
    chance = rng.choice([0, 0, 0.05])
    runner = InterruptedRunner(case.runner, rng, chance)
    engine = LLMEngine(
        scheduler,
        runner,
        inputs,
        OutputProcessor(None),
        async_scheduling=bool(case.depth),
    )
    outputs, aborted = {}, set()
    for now in range(10_000):
        while case.arrivals and case.arrivals[0] <= now:
            case.arrivals.pop(0)
            name = f"r{len(case.requests)}"
            engine.add_request(
                name, case.prompt(), random_params(rng), priority=rng.randint(-1, 1)
            )
            case.requests.append(scheduler.get(name))
        if case.requests and rng.random() < 0.03:
            victim = rng.choice(case.requests).request_id
            engine.abort_request([victim, "nobody", victim])
            aborted.add(victim)
        if not case.arrivals and not engine.has_unfinished_requests():
            break
        try:
            for output in engine.step():
                outputs.setdefault(output.request_id, []).append(output)
        except Interrupted:
            continue
        assert chance or now <= case.most_steps
    engine.check_invariants()
    assert engine.stats.num_blocks_in_use == 0
    assert engine.get_num_unfinished_requests() == 0
    for request in case.requests:
        expected = alone(request, vocab_size=VOCAB_SIZE, poison=case.runner._poison)
        check_outputs(request, outputs.get(request.request_id, []), expected, aborted)


def random_params(rng):
    most = rng.choice([1, 2, 10, None])
    return SamplingParams(
        temperature=rng.choice([0.0, 1.0]),
        seed=rng.randrange(2**32),
        max_tokens=most,
        min_tokens=rng.choice([0, 0, 1]),
        ignore_eos=rng.random() < 0.3,
        stop_token_ids=rng.choice([[], [2]]),
        logprobs=rng.choice([None, 0]),
        detokenize=False,
        output_kind=rng.choice(list(RequestOutputKind)),
    )


def check_outputs(request, outputs, expected, aborted):
    finals = [output for output in outputs if output.finished]
    if not finals:
        assert request.request_id in aborted
        return
    assert finals == outputs[-1:]
    (completion,) = outputs[-1].outputs
    shown = list(completion.token_ids)
    if any(len(o.outputs[0].token_ids) < len(expected[0]) for o in finals):
        shown = [t for output in outputs for t in output.outputs[0].token_ids]
    assert (shown, completion.finish_reason, completion.stop_reason) == expected
