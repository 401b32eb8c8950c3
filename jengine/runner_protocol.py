"""What the engine asks of whoever runs its plans."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from jengine.core.plan import StepPlan, StepResult


@runtime_checkable
class Runner(Protocol):
    """Runs plans on a device, in their order."""

    def dispatch(self, plan: StepPlan, *, awaits_masks: bool = False) -> Any:
        """Start a step that has rows; with masks to come, draw nothing yet."""
        ...

    def draw(self, handle: Any, constraints: Sequence[Any]) -> Any:
        """Draw the tokens of a step that waits for masks; return its new handle."""
        ...

    def collect(self, handle: Any) -> StepResult:
        """Wait for a step's result."""
        ...

    def reset(self) -> None:
        """Forget all seats; what was in flight is lost."""
        ...
