import pytest

from jengine.core.events import TokenEvent
from jengine.core.plan import ScheduledRequest, StepPlan
from jengine.core.request import FinishReason, Request
from jengine.structured_output.constraint import ConstraintError
from jengine.structured_output.tracker import ConstraintTracker


class Counter:
    """Ends with 9, breaks at 8, and remembers what it saw."""

    def __init__(self):
        self.seen = []

    def advance(self, token_id):
        if token_id == 8:
            raise ConstraintError("no eights")
        self.seen.append(token_id)
        return token_id == 9

    def restart(self, token_ids):
        self.seen = list(token_ids)

    def restrict(self, mask):
        """Forbid nothing."""


def request(name):
    return Request(name, [1], max_total_tokens=20)


def plan(*rows):
    made = tuple(
        ScheduledRequest(name, seat, 0, (1,), False, (), samples, None)
        for seat, (name, samples) in enumerate(rows)
    )
    return StepPlan(0, made, len(made), len(made), (), ())


@pytest.fixture
def tracked():
    tracker, constraint, one = ConstraintTracker(), Counter(), request("a")
    tracker.add(one, [constraint])
    return tracker, constraint, one


def test_rows_that_sample_get_their_own_constraints(tracked):
    tracker, constraint, _ = tracked
    step = plan(("b", True), ("x", False), ("a", True))
    assert tracker.for_plan(step) == [(), [constraint]]
    assert tracker.for_plan(plan(("b", True), ("a", False))) is None
    tracker.discard(["a", "nobody"])
    assert tracker.for_plan(step) is None


def test_requests_without_constraints_are_not_tracked():
    tracker = ConstraintTracker()
    tracker.add(request("a"), [])
    assert tracker.for_plan(plan(("a", True))) is None


@pytest.mark.parametrize(
    ("token_ids", "reason", "seen"),
    [
        ((3,), None, [3]),
        ((9,), FinishReason.STOP, [9]),
        ((8,), FinishReason.ERROR, []),
        ((3, 9, 4), FinishReason.STOP, [3, 9]),
        ((), None, []),
    ],
)
def test_tokens_reach_their_constraint(tracked, token_ids, reason, seen):
    tracker, constraint, one = tracked
    events = [TokenEvent(request("b"), (9,), None), TokenEvent(one, token_ids, None)]
    ended = tracker.advance(events)
    assert ended == ([] if reason is None else [("a", reason)])
    assert constraint.seen == seen
    assert (tracker.for_plan(plan(("a", True))) is None) is (reason is not None)


def test_another_request_of_the_same_name_is_not_its_own(tracked):
    tracker, constraint, _ = tracked
    assert tracker.advance([TokenEvent(request("a"), (9,), None)]) == []
    assert constraint.seen == []


def test_every_constraint_sees_every_token():
    tracker, one = ConstraintTracker(), request("a")
    constraints = [Counter(), Counter()]
    tracker.add(one, constraints)
    tracker.advance([TokenEvent(one, (9,), None)])
    assert [constraint.seen for constraint in constraints] == [[9], [9]]


def test_starting_over_takes_the_known_output(tracked):
    tracker, constraint, one = tracked
    one.token_ids += [4, 5]
    tracker.restart()
    assert constraint.seen == [4, 5]


def test_whatever_a_constraint_raises_ends_its_own_request(tracked, monkeypatch):
    tracker, constraint, one = tracked
    other, own = request("b"), Counter()
    tracker.add(other, [own])

    def fail(token_id):
        raise ValueError("broken")

    monkeypatch.setattr(constraint, "advance", fail)
    events = [TokenEvent(one, (3,), None), TokenEvent(other, (3,), None)]
    assert tracker.advance(events) == [("a", FinishReason.ERROR)]
    assert own.seen == [3]
