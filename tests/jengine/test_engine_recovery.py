"""A step that breaks off anywhere costs no request, and changes no token."""

import pathlib
import sys

import pytest

import jengine.engine
from jengine import RequestOutputKind, SamplingParams

PACKAGE = str(pathlib.Path(jengine.engine.__file__).parent)
REQUESTS = {
    "plain": ([1, 2, 3], {"max_tokens": 7}),
    "logprobs": ([1, 2, 3, 5, 6], {"max_tokens": 4, "logprobs": 0}),
    "drawn": ([4] * 9, {"max_tokens": 5, "temperature": 1, "seed": 3}),
    "stopped": ("hello", {"max_tokens": 9, "stop": ["STOP"]}),
    "delta": ([7], {"max_tokens": 6, "output_kind": RequestOutputKind.DELTA}),
}


def params(options):
    return SamplingParams(**{"temperature": 0} | options)


@pytest.fixture
def requests(expected_ids):
    """The requests, one of them with a stop string that its text meets."""
    ids = expected_ids([7, 4, 11, 11, 14], params({"max_tokens": 9}))
    stop = "".join(chr(97 + token) for token in ids[2:4])
    return {
        name: (
            prompt,
            params(options | ({"stop": [stop]} if "stop" in options else {})),
        )
        for name, (prompt, options) in REQUESTS.items()
    }


@pytest.fixture
def run(make_engine, requests):
    """Runs the requests; `break_off` may make any step raise."""

    def go(engine):
        for name, (prompt, one) in requests.items():
            engine.add_request(name, prompt, one)
        found = {name: [] for name in requests}
        for _ in range(300):
            if not engine.has_unfinished_requests():
                break
            try:
                outputs = engine.step()
            except (OSError, KeyboardInterrupt):
                continue
            for output in outputs:
                found[output.request_id].append(output)
        engine.check_invariants()
        assert engine.stats.num_blocks_in_use == 0
        assert not engine.has_unfinished_requests()
        return {name: summary(name, outputs) for name, outputs in found.items()}

    return go


def summary(name, outputs):
    """What the user of a request has seen in the end."""
    finals = [o for o in outputs if o.finished]
    assert len(finals) == 1, f"{name} ended {len(finals)} times"
    assert outputs[-1].finished, name
    done = outputs[-1].outputs[0]
    shown = outputs if name == "delta" else outputs[-1:]
    return (
        [token for o in shown for token in o.outputs[0].token_ids],
        "".join(o.outputs[0].text for o in shown),
        done.logprobs,
        done.cumulative_logprob,
        (done.finish_reason, done.stop_reason),
    )


class Failing:
    """Makes the n-th call of a method raise, before or after it has done its work."""

    def __init__(self, method, number, *, late):
        self.method, self.number, self.late, self.calls = method, number, late, 0

    def __call__(self, *arguments, **options):
        self.calls += 1
        if self.calls == self.number and not self.late:
            raise OSError("device lost")
        result = self.method(*arguments, **options)
        if self.calls == self.number:
            raise OSError("device lost")
        return result


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("num_blocks", [9, 40])
@pytest.mark.parametrize("method", ["dispatch", "collect"])
@pytest.mark.parametrize("late", [False, True])
def test_a_runner_that_fails_at_any_step(
    make_engine, run, ahead, num_blocks, method, late
):
    want = run(make_engine(ahead=ahead))
    assert want["stopped"][4][0] == "stop"
    number = 0
    for number in range(1, 40):
        engine = make_engine(ahead=ahead, num_blocks=num_blocks)
        failing = Failing(getattr(engine.runner, method), number, late=late)
        setattr(engine.runner, method, failing)
        assert run(engine) == want, number
        if failing.calls < number:
            break
    assert 5 < number < 39


def test_requests_added_and_ended_after_a_failure(make_engine, expected_ids):
    engine = make_engine()
    for name in "ab":
        engine.add_request(name, [1, 2, 3], params({"max_tokens": 5}))
    engine.step()
    dispatch = engine.runner.dispatch
    engine.runner.dispatch = Failing(dispatch, 1, late=True)
    with pytest.raises(OSError, match="device lost"):
        engine.step()
    engine.add_request("c", [4], params({"max_tokens": 5}))
    engine.abort_request("a")
    assert engine.get_num_unfinished_requests() == 2
    found = {}
    while engine.has_unfinished_requests():
        found |= {o.request_id: o.outputs[0].token_ids for o in engine.step()}
    assert found == {
        "b": expected_ids([1, 2, 3], params({"max_tokens": 5})),
        "c": expected_ids([4], params({"max_tokens": 5})),
    }


@pytest.mark.parametrize("question", ["reset_prefix_cache", "check_invariants"])
def test_whatever_is_called_next_recovers_first(make_engine, question):
    engine = make_engine()
    engine.add_request("a", [1, 2, 3, 4, 5], params({"max_tokens": 5}))
    engine.step()
    engine.step()
    engine.runner.collect = Failing(engine.runner.collect, 1, late=False)
    with pytest.raises(OSError, match="device lost"):
        engine.step()
    getattr(engine, question)()
    stats = engine.stats
    assert (stats.num_running, stats.num_waiting, stats.num_blocks_in_use) == (0, 1, 0)


def interrupt_at(owner, method, number):
    """Let the n-th line that a method runs inside jengine raise KeyboardInterrupt.

    Returns:
      A list to which the place is added when it happens.
    """
    places, call = [], getattr(owner, method)
    lines = 0

    def trace(frame, event, _argument):
        nonlocal lines
        file = frame.f_code.co_filename
        if not file.startswith(PACKAGE) or "fake_runner" in file:
            return None
        if event == "line" and not places:
            lines += 1
            if lines == number:
                places.append(f"{file}:{frame.f_lineno}")
                raise KeyboardInterrupt
        return trace

    def traced(*arguments):
        sys.settrace(trace)
        try:
            return call(*arguments)
        finally:
            sys.settrace(None)

    setattr(owner, method, traced)
    return places


def check_interrupts(make_engine, run, numbers, *, ahead):
    want = run(make_engine(ahead=ahead))
    for number in numbers:
        engine = make_engine(ahead=ahead)
        places = interrupt_at(engine, "_step", number)
        try:
            got = run(engine)
        except AssertionError as error:
            raise AssertionError(f"interrupted at {places}") from error
        if not places:
            return
        assert got == want, f"interrupted at {places}"
    raise AssertionError("more lines than numbers")


@pytest.mark.parametrize("ahead", [False, True])
def test_an_interrupt_at_some_lines(make_engine, run, ahead):
    check_interrupts(make_engine, run, range(3, 100_000, 97), ahead=ahead)


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [False, True])
def test_an_interrupt_at_many_lines(make_engine, run, ahead):
    check_interrupts(make_engine, run, range(1, 100_000, 29), ahead=ahead)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("method", ["abort_request", "add_request"])
def test_an_interrupt_at_any_line_of_a_command(
    make_engine, expected_ids, method, ahead
):
    """The others go on, and the command can be given again."""
    options = params({"max_tokens": 6})
    want = {name: expected_ids([1, 2, 3], options) for name in "ab"}
    number = 0
    for number in range(1, 10_000):
        engine = make_engine(ahead=ahead, seqs=2)  # c waits
        for name in "abc":
            engine.add_request(name, [1, 2, 3], options)
        engine.step()
        engine.step()
        places = interrupt_at(engine, method, number)
        command = ("c",) if method == "abort_request" else ("d", [4], options)
        try:
            getattr(engine, method)(*command)
        except KeyboardInterrupt:
            engine.abort_request(command[0])
        found = {}
        while engine.has_unfinished_requests():
            found |= {o.request_id: o.outputs[0].token_ids for o in engine.step()}
        engine.check_invariants()
        assert engine.stats.num_blocks_in_use == 0
        assert found.items() >= want.items(), places
        assert ("c" in found) is (method == "add_request"), places
        assert ("d" in found) is (method == "add_request" and not places), places
        if not places:
            break
    assert 20 < number < 9_999


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("owner", ["_scheduler", "_outputs"])
def test_what_was_delivered_does_not_come_back(make_engine, ahead, owner):
    engine = make_engine(ahead=ahead)
    engine.add_request("a", [1, 2, 3], params({"max_tokens": 2}))
    delivered = []
    while engine.has_unfinished_requests():
        delivered = engine.step()
    assert delivered[0].finished
    part = getattr(engine, owner)
    add = part.add

    def interrupted(*_):
        raise KeyboardInterrupt

    part.add = interrupted
    with pytest.raises(KeyboardInterrupt):
        engine.add_request("b", [4], params({"max_tokens": 2}))
    part.add = add
    engine.abort_request("b")
    assert not engine.has_unfinished_requests()
    assert engine.step() == []
    engine.check_invariants()
