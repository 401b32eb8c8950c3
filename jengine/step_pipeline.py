"""Which step is started and which is read next: at most one runs ahead of the other.

With one step ahead, step N+1 is planned and dispatched before the tokens of step N
are read, so that the host works while the device does. Without, each step is read
at once. Both give the same outputs.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from jengine.core.plan import StepPlan, StepResult
from jengine.metrics_recorder import MetricsRecorder
from jengine.runner_protocol import Runner
from jengine.structured_output.tracker import ConstraintTracker


class InFlight(NamedTuple):
    """A step that has been dispatched.

    Attributes:
      plan: what it does.
      handle: the runner's.
      awaits_masks: whether it draws nothing before it is told what may be drawn.
      dispatched_at: seconds of the recorder's clock.
    """

    plan: StepPlan
    handle: Any
    awaits_masks: bool
    dispatched_at: float


class StepPipeline:
    """Passes plans to the runner, and holds what has not been read.

    Attributes:
      runner: whoever runs the plans; may be replaced by one that passes them on.
    """

    def __init__(
        self,
        runner: Runner,
        constraints: ConstraintTracker,
        metrics: MetricsRecorder,
        *,
        one_step_ahead: bool,
    ) -> None:
        """Make an empty pipeline.

        Args:
          runner: runs the plans.
          constraints: say what each row may draw.
          metrics: is told when steps start and end.
          one_step_ahead: whether a step is dispatched before the last one is read.
        """
        self.runner = runner
        self._constraints = constraints
        self._metrics = metrics
        self._one_step_ahead = one_step_ahead
        self._planned: StepPlan | None = None
        self._in_flight: InFlight | None = None
        self._known_programs = 0

    @property
    def num_programs(self) -> int:
        """Programs that the runner has compiled; 0 if it does not say."""
        return getattr(self.runner, "num_programs", 0)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits to be run or to be read."""
        return self._planned is None and self._in_flight is None

    def next_due(self, schedule: Callable[[], StepPlan]) -> InFlight | None:
        """Start a step and return the one to be read now, if there is one.

        A step whose program had to be compiled, or loaded, is read before the next is
        started, which may have to be compiled as well: that takes seconds, and the
        first token of a request should not wait for the program of its second. The
        plan is made all the same, so that plans do not depend on what is compiled.

        Args:
          schedule: makes the next plan.
        """
        if self._planned is not None:  # every token before it is known
            waiting, self._planned = self._planned, None
            self._in_flight = self._draw(self._dispatch(waiting))
        plan, due = schedule(), self._in_flight
        if self._has_compiled() and due is not None and plan.rows:
            self._planned, self._in_flight = plan, None
            return due
        started = self._dispatch(plan) if plan.rows else None
        if self._one_step_ahead:
            self._in_flight = started
            return due
        return None if started is None else self._draw(started)

    def collect(self, step: InFlight) -> StepResult:
        """Wait for what a step drew."""
        waited_since = self._metrics.waits()
        result = self.runner.collect(step.handle)
        self._metrics.collected(step.dispatched_at, waited_since)
        return result

    def draw(self) -> None:
        """Draw what waits for masks, once every token before it is known."""
        if self._in_flight is not None:
            self._in_flight = self._draw(self._in_flight)

    def forget_in_flight(self) -> None:
        """Forget what has been dispatched; nobody wants its tokens.

        A plan that waits stays, and is the next to be dispatched: the prefix cache
        counts on what it writes.
        """
        self._in_flight = None

    def clear(self) -> None:
        """Forget everything, plans that were never dispatched included."""
        self._planned = self._in_flight = None

    def _dispatch(self, plan: StepPlan) -> InFlight:
        awaits = self._constraints.for_plan(plan) is not None
        handle = self.runner.dispatch(plan, awaits_masks=awaits)
        return InFlight(plan, handle, awaits, self._metrics.dispatched(plan))

    def _draw(self, step: InFlight) -> InFlight:
        if not step.awaits_masks:
            return step
        sampling = [row for row in step.plan.rows if row.samples]
        constraints = self._constraints.for_plan(step.plan) or [()] * len(sampling)
        handle = self.runner.draw(step.handle, constraints)
        return step._replace(handle=handle, awaits_masks=False)

    def _has_compiled(self) -> bool:
        """Whether the last step had to be compiled."""
        known, self._known_programs = self._known_programs, self.num_programs
        return known != self._known_programs
