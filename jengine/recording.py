"""Keeps the plans and results of a run: to draw it, save it, or compare it.

A run is nothing but its plans (`jengine.core.plan`); what is kept here are those
values themselves, and JSON is that of `jengine.core.plan_json`.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from jengine.core.cache_manager import CacheManager
from jengine.core.plan import StepPlan, StepResult
from jengine.core.plan_json import (
    plan_from_json,
    plan_to_json,
    result_from_json,
    result_to_json,
)
from jengine.errors import InvalidValueError
from jengine.runner_protocol import Runner


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """Steps that have run, one after another.

    Attributes:
      block_size: tokens in a KV block.
      num_blocks: KV blocks, the null block included.
      prefix_caching: whether full blocks were kept for prompts that start alike.
      plans: what ran.
      results: what came of it, as far as anybody asked: the token that a step ahead
        drew for a request that had ended is never read.
    """

    block_size: int
    num_blocks: int
    prefix_caching: bool
    plans: tuple[StepPlan, ...]
    results: tuple[StepResult, ...]

    def first_difference(self, other: "RecordedRun") -> int | None:
        """Return the index of the first plan or result that differs, None for none.

        A run that ends sooner than the other differs where it ends.
        """
        firsts = [
            _first_difference(self.plans, other.plans),
            _first_difference(self.results, other.results),
        ]
        return min((one for one in firsts if one is not None), default=None)

    def to_json(self) -> dict[str, Any]:
        """Return dicts, lists, strings and numbers."""
        return {
            "block_size": self.block_size,
            "num_blocks": self.num_blocks,
            "prefix_caching": self.prefix_caching,
            "plans": [plan_to_json(plan) for plan in self.plans],
            "results": [result_to_json(result) for result in self.results],
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "RecordedRun":
        """Rebuild a run from `to_json`'s value.

        Raises:
          ValueError: it was written by a version whose plans had other fields.
        """
        fields = dict(value)
        fields["plans"] = tuple(map(plan_from_json, fields["plans"]))
        fields["results"] = tuple(map(result_from_json, fields["results"]))
        return cls(**fields)


class Recorder:
    """Collects plans and results as they come."""

    def __init__(self, cache: CacheManager) -> None:
        """Collect nothing yet.

        Args:
          cache: whose blocks the plans hand out; only its sizes are read.
        """
        self._cache = cache
        self._plans: list[StepPlan] = []
        self._results: list[StepResult] = []

    @property
    def run(self) -> RecordedRun:
        """What has been collected so far."""
        return RecordedRun(
            block_size=self._cache.block_size,
            num_blocks=self._cache.pool.num_blocks,
            prefix_caching=self._cache.enable_prefix_caching,
            plans=tuple(self._plans),
            results=tuple(self._results),
        )

    def planned(self, plan: StepPlan) -> None:
        """Keep a plan that has rows; any other is not run."""
        if plan.rows:
            self._plans.append(plan)

    def learnt(self, result: StepResult) -> None:
        """Keep a result."""
        self._results.append(result)


class RecordingRunner:
    """Passes everything on to another runner, and tells a recorder."""

    def __init__(self, runner: Runner, recorder: Recorder) -> None:
        """Stand before `runner`."""
        self._inner = runner
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        """Return what else the other runner has."""
        return getattr(self._inner, name)

    def dispatch(self, plan: StepPlan, *, awaits_masks: bool = False) -> Any:
        """Start a step."""
        handle = self._inner.dispatch(plan, awaits_masks=awaits_masks)
        self._recorder.planned(plan)
        return handle

    def draw(self, handle: Any, constraints: Sequence[Any]) -> Any:
        """Draw the tokens of a step that waits for masks."""
        return self._inner.draw(handle, constraints)

    def collect(self, handle: Any) -> StepResult:
        """Wait for a step's result."""
        result = self._inner.collect(handle)
        self._recorder.learnt(result)
        return result

    def reset(self) -> None:
        """Forget all seats."""
        self._inner.reset()


@contextlib.contextmanager
def record(llm: Any) -> Iterator[Recorder]:
    """Record all steps of an engine while a `with` block lasts.

        with record(llm) as recorder:
            llm.generate("Once upon a time")
        timeline(recorder.run)

    Args:
      llm: an `LLM` or an `LLMEngine`; best without requests at the start, for what
        they hold by then is in no plan that is recorded.

    Raises:
      InvalidValueError: it is neither.
    """
    engine = getattr(llm, "llm_engine", llm)
    if not (hasattr(engine, "cache") and hasattr(engine, "runner")):
        raise InvalidValueError(
            "llm",
            llm,
            "an LLM or an LLMEngine",
            "The engine of an AsyncLLM belongs to its thread: record(engine) before"
            " AsyncLLM.from_engine(engine), or make the same requests of an LLM.",
        )
    recorder, inner = Recorder(engine.cache), engine.runner
    engine.runner = RecordingRunner(inner, recorder)
    try:
        yield recorder
    finally:
        engine.runner = inner


def _first_difference(mine: Sequence[object], others: Sequence[object]) -> int | None:
    for index, (one, other) in enumerate(zip(mine, others, strict=False)):
        if one != other:
            return index
    shorter = min(len(mine), len(others))
    return None if len(mine) == len(others) else shorter
