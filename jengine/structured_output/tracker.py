"""The constraints of all running requests, kept in step with their tokens."""

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from jengine.core.events import TokenEvent
from jengine.core.plan import StepPlan
from jengine.core.request import FinishReason, Request
from jengine.structured_output.constraint import Constraint, ConstraintError

logger = logging.getLogger(__name__)


class _Tracked(NamedTuple):
    request: Request
    constraints: Sequence[Constraint]


class ConstraintTracker:
    """Feeds each request's tokens to its constraints."""

    def __init__(self) -> None:
        """Track nothing yet."""
        self._tracked: dict[str, _Tracked] = {}

    def add(self, request: Request, constraints: Sequence[Constraint]) -> None:
        """Track a request, if it has any constraint."""
        if constraints:
            self._tracked[request.request_id] = _Tracked(request, constraints)

    def discard(self, request_ids: Iterable[str]) -> None:
        """Forget requests; unknown ids are ignored."""
        for request_id in request_ids:
            self._tracked.pop(request_id, None)

    def for_plan(self, plan: StepPlan) -> list[Sequence[Constraint]] | None:
        """Return each sampling row's constraints, in row order; None if none has any.

        Call it again before the masks are made: a request may end in between.
        """
        if not self._tracked:
            return None
        found = [self._of(row.request_id) for row in plan.rows if row.samples]
        return found if any(found) else None

    def advance(self, events: Iterable[TokenEvent]) -> list[tuple[str, FinishReason]]:
        """Take in a step's tokens.

        Returns:
          Requests that end by this: their text is complete, or cannot go on.
        """
        ended: list[tuple[str, FinishReason]] = []
        if not self._tracked:
            return ended
        for event in events:
            request = event.request
            tracked = self._tracked.get(request.request_id)
            if tracked is None or tracked.request is not request:
                continue
            reason = self._take(tracked, event.token_ids)
            if reason is not None and request.is_finished:
                request.conclude(reason)
            elif reason is not None:
                ended.append((request.request_id, reason))
            if reason is not None or request.is_finished:
                del self._tracked[request.request_id]
        return ended

    def restart(self) -> None:
        """Bring all constraints in line with the known tokens, after a broken step."""
        for request, constraints in self._tracked.values():
            known = request.token_ids[request.num_prompt_tokens :]
            for constraint in constraints:
                constraint.restart(known)

    def _of(self, request_id: str) -> Sequence[Constraint]:
        tracked = self._tracked.get(request_id)
        return () if tracked is None else tracked.constraints

    def _take(self, tracked: _Tracked, token_ids: Sequence[int]) -> FinishReason | None:
        try:
            for token_id in token_ids:
                # Each of them has to see the token.
                ends = [one.advance(token_id) for one in tracked.constraints]
                if any(ends):
                    return FinishReason.STOP
        except ConstraintError as error:
            request_id = tracked.request.request_id
            logger.error("request %s breaks its constraint: %s", request_id, error)
            return FinishReason.ERROR
        except Exception:  # whatever it is, the other requests are none of its business
            request_id = tracked.request.request_id
            logger.exception("the constraint of request %s breaks down", request_id)
            return FinishReason.ERROR
        return None
