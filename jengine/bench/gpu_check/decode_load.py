"""Requests of equal length that decode together, and what a step of theirs takes."""

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jengine.bench.gpu_check.device_profile import profile_steps
from jengine.bench.gpu_check.engine_load import RunnerProbe, greedy, random_prompts
from jengine.core.plan import StepPlan
from jengine.engine import LLMEngine

_WARM_UP = 4  # steps


class Load(NamedTuple):
    """How many requests decode, over how much context.

    Attributes:
      batch: requests.
      prompt: tokens of each prompt.
      steps: decode steps that are timed.
      traced: steps after them that are traced.
    """

    batch: int
    prompt: int
    steps: int
    traced: int

    def max_tokens(self, token_budget: int) -> int:
        """Return how long the first request must go on while others arrive."""
        arriving = -(-self.batch * self.prompt // token_budget)
        return 2 * arriving + _WARM_UP + self.steps + self.traced + 8


class LoadTimes(NamedTuple):
    """What a load took.

    Attributes:
      prefill_s: from the first step until all requests decode.
      step_s: seconds of each timed step, from one result to the next.
      host_s: of these, in the runner's dispatch.
      wait_s: of these, waiting for the device.
      context: tokens of all rows in the step in the middle.
      profile: of the traced steps.
    """

    prefill_s: float
    step_s: list[float]
    host_s: list[float]
    wait_s: list[float]
    context: int
    profile: dict[str, Any]

    def fields(self, batch: int) -> dict[str, Any]:
        """Return what a record says of it."""
        step = statistics.median(self.step_s)
        busy = self.profile.get("device_busy_s_per_step")
        return {
            "seconds": step,
            "fastest_s": min(self.step_s),
            "slowest_s": max(self.step_s),
            "samples": len(self.step_s),
            "tokens_per_s": batch / step,
            "dispatch_s": statistics.median(self.host_s),
            "wait_s": statistics.median(self.wait_s),
            "host_gap_s": None if busy is None else step - busy,
            "prefill_s": self.prefill_s,
            "context_tokens": self.context,
            **self.profile,
        }


def run_load(
    engine: LLMEngine,
    probe: RunnerProbe,
    load: Load,
    *,
    vocab_size: int,
    token_budget: int,
    clock: Callable[[], float] = time.perf_counter,
) -> LoadTimes:
    """Let requests decode together, time some steps, and abort them.

    Args:
      engine: without requests; its runner is `probe`.
      probe: see above.
      load: what to run.
      vocab_size: ids that prompts are drawn from.
      token_budget: of the engine.
      clock: seconds.
    """
    params = greedy(load.max_tokens(token_budget))
    lengths = [load.prompt] * load.batch
    prompts = random_prompts(np.random.default_rng(0), lengths, vocab_size)
    ids = [str(number) for number in range(load.batch)]
    for request_id, prompt in zip(ids, prompts, strict=True):
        engine.add_request(request_id, {"prompt_token_ids": prompt}, params)
    probe.forget()
    start = clock()
    while probe.decoding_rows != load.batch:
        assert engine.has_unfinished_requests()  # none of them ends so early
        engine.step()
    probe.wait_for_device()
    prefill_s = clock() - start
    for _ in range(_WARM_UP):
        engine.step()
    times = _timed_steps(engine, probe, load.steps, clock)
    context = context_tokens(probe.last_plan) - load.batch * (load.steps // 2)
    profile = _traced_steps(engine, probe, load.traced)
    assert probe.decoding_rows == load.batch  # none of them ended meanwhile
    engine.abort_request(ids)
    while engine.has_unfinished_requests():
        engine.step()
    return LoadTimes(prefill_s, *times, context, profile)


def context_tokens(plan: StepPlan | None) -> int:
    """Return the tokens of all rows of a plan, its own included."""
    rows = () if plan is None else plan.rows
    return sum(row.num_computed_tokens + row.num_tokens for row in rows)


def _timed_steps(
    engine: LLMEngine, probe: RunnerProbe, steps: int, clock: Callable[[], float]
) -> tuple[list[float], list[float], list[float]]:
    times = []
    for _ in range(steps):
        start = clock()
        engine.step()
        times.append(clock() - start)
    return times, probe.host_s[-steps:], probe.wait_s[-steps:]


def _traced_steps(engine: LLMEngine, probe: RunnerProbe, steps: int) -> dict[str, Any]:
    probe.wait_for_device()  # so that nothing of earlier steps is in the trace

    def run() -> None:
        for _ in range(steps):
            engine.step()
        probe.wait_for_device()

    return dict(profile_steps(run, steps)) if steps else {}
