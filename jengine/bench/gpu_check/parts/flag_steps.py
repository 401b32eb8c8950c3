"""Decode steps of a few layers, to be run under one set of XLA flags after another.

The layers are those of Llama-3.1-8B. Plans are made here, so that no step with a
prompt has to be compiled; the cache holds zeros, which all sets of flags share.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax

from jengine.bench.gpu_check.engine_load import EngineSize, RunnerProbe, make_engine
from jengine.bench.gpu_check.model_shapes import LLAMA_8B, TINY
from jengine.bench.gpu_check.recorder import Recorder
from jengine.bench.gpu_check.target import Target, find_target
from jengine.bench.gpu_check.timing import time_chain
from jengine.core.plan import SamplingOptions, ScheduledRequest, StepPlan
from jengine.runner.random_model import random_model


class Task(NamedTuple):
    """What is run.

    Attributes:
      name: of the model.
      config: of the model.
      batches: rows of each load.
      context: tokens of each row at the start.
      samples: that are timed.
      advances: steps of each, so that all flags see the same context.
    """

    name: str
    config: Mapping[str, Any]
    batches: tuple[int, ...]
    context: int
    samples: int
    advances: int

    @property
    def steps(self) -> int:
        """Steps in all: the first compiles, two warm up."""
        return 3 + self.samples * self.advances

    @property
    def size(self) -> EngineSize:
        """The limits of an engine for the largest load."""
        longest = self.context + self.steps
        return EngineSize(
            rows=tuple(sorted(self.batches)),
            token_budget=max(16, *self.batches),
            max_model_len=longest,
            num_blocks=1 + max(self.batches) * -(-longest // 16),
        )


FULL = Task(
    "8 layers of 8B", {**LLAMA_8B, "num_hidden_layers": 8}, (1, 64), 1024, 7, 64
)
SMOKE = Task("tiny", TINY, (2,), 24, 3, 2)


def run(recorder: Recorder) -> None:
    """Time the decode step of each number of rows."""
    task = SMOKE if recorder.smoke else FULL
    target = find_target()
    made: list[RunnerProbe] = []
    for batch in task.batches:
        recorder.measure(
            f"{task.name}, batch {batch}",
            lambda batch=batch: measure(task, batch, target, made),
            least_s=4.0,
        )


def measure(
    task: Task, batch: int, target: Target, made: list[RunnerProbe]
) -> Mapping[str, Any]:
    """Time steps that are dispatched one after another and read by nobody."""
    if not made:
        model = random_model(task.config, dtype="bfloat16", device=target.device)
        made.append(make_engine(model, task.size, target)[1])
    probe = made[0]
    probe.reset()
    plans = decode_plans(batch, context=task.context, steps=task.steps)
    start = time.perf_counter()
    dispatch_next(probe, plans)()  # compiles
    probe.wait_for_device()
    first_s = time.perf_counter() - start
    advance = dispatch_next(probe, plans)
    timing = time_chain(
        lambda _: advance(), None, samples=task.samples, advances=task.advances
    )
    return {
        **timing.fields(),
        "first_step_s": first_s,
        "tokens_per_s": batch / timing.seconds,
        "summary": f"step {timing.seconds * 1e6:,.0f} us, first {first_s:.1f} s",
    }


def dispatch_next(
    probe: RunnerProbe, plans: Iterator[StepPlan]
) -> Callable[[], jax.Array]:
    """Return a function that dispatches the next plan and returns what it samples."""
    return lambda: probe.dispatch(next(plans)).out


def decode_plans(batch: int, *, context: int, steps: int) -> Iterator[StepPlan]:
    """Make the plans of requests whose prompts count as computed.

    Args:
      batch: requests, all of the same length.
      context: tokens of each in the first step.
      steps: plans; the blocks of all of them are given in the first.
    """
    blocks = -(-(context + steps) // 16)
    for step in range(steps):
        is_first = step == 0
        rows = tuple(
            ScheduledRequest(
                request_id=str(row),
                seat=row,
                num_computed_tokens=context - 1 + step,
                token_ids=(row + 3,) if is_first else (),
                carries=not is_first,
                new_block_ids=tuple(range(1 + row * blocks, 1 + (row + 1) * blocks))
                if is_first
                else (),
                samples=True,
                options=SamplingOptions() if is_first else None,
            )
            for row in range(batch)
        )
        yield StepPlan(step, rows, batch, batch, (), ())
