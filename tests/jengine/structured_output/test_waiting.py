"""A compiler that takes its time, in an engine without a model."""

import threading

import pytest

from jengine import SamplingParams, StructuredOutputsParams
from jengine.core.request import FinishReason, RequestStatus
from jengine.errors import InvalidValueError, SamplingParamsError, UnsupportedError
from jengine.structured_output import waiting
from jengine.structured_output.constraint import BadWords, GrammarError
from jengine.structured_output.manager import GrammarManager
from jengine.structured_output.waiting import WaitingForGrammar


class SlowBackend:
    """Compiles when it is let go."""

    def __init__(self):
        self.let_go = threading.Event()

    def compile(self, params):
        self.let_go.wait(60)
        if params.regex == "bad":
            raise GrammarError("no such thing")

    def constraint(self, compiled, stop_token_ids):
        return BadWords([])


@pytest.fixture
def backend():
    made = SlowBackend()
    yield made
    made.let_go.set()  # else the thread would keep the process


@pytest.fixture
def engine(make_engine, backend, monkeypatch):
    monkeypatch.setattr(waiting, "_SHORT_COMPILE_S", 0.01)
    engine = make_engine()
    engine._waiting = WaitingForGrammar(GrammarManager(lambda: backend))
    return engine


def params(regex=None, **options):
    grammar = regex and StructuredOutputsParams(regex=regex)
    return SamplingParams(
        temperature=0, max_tokens=5, structured_outputs=grammar, **options
    )


def run(engine, found):
    for output in engine.step():
        if output.finished:
            found[output.request_id] = output.outputs[0]


def test_others_go_on_while_a_grammar_is_compiled(engine, backend, expected_ids):
    engine.add_request("slow", [1, 2, 3], params("good"))
    engine.add_request("plain", [1, 2, 3], params())
    assert engine.get_num_unfinished_requests() == 2
    assert engine.has_request("slow")
    found = {}
    while "plain" not in found:
        run(engine, found)
    assert engine.has_unfinished_requests()
    run(engine, found)  # nothing to do, and no error
    assert set(found) == {"plain"}
    backend.let_go.set()
    while engine.has_unfinished_requests():
        run(engine, found)
    wanted = expected_ids([1, 2, 3], params())
    assert found["slow"].token_ids == found["plain"].token_ids == wanted
    engine.check_invariants()


def test_the_loop_waits_for_a_slow_grammar_only_once(engine, backend, monkeypatch):
    waits = []
    wait = waiting.concurrent.futures.wait

    def note(futures, timeout, **options):
        waits.append(timeout)
        return wait(futures, timeout, **options)

    monkeypatch.setattr(waiting.concurrent.futures, "wait", note)
    for number in range(3):
        engine.add_request(str(number), [1, 2, 3], params("good" + "x" * number))
    assert waits == [0.01, 0, 0]
    backend.let_go.set()
    found = {}
    while engine.has_unfinished_requests():
        run(engine, found)
    assert len(found) == 3
    waits.clear()
    engine.add_request("later", [1, 2, 3], params("better"))
    assert waits == [0.01]


def test_ids_of_waiting_completions_are_taken(engine, backend):
    engine.add_request("slow", [1, 2, 3], params("good", n=2))
    with pytest.raises(InvalidValueError, match="an id that no live request has"):
        engine.add_request("1_slow", [1, 2, 3], params())
    backend.let_go.set()
    found = {}
    while engine.has_unfinished_requests():
        run(engine, found)
    engine.add_request("1_slow", [1, 2, 3], params())
    engine.abort_request("1_slow")


def test_a_late_error_ends_its_own_request(engine, backend, expected_ids):
    engine.add_request("bad", [1, 2, 3], params("bad", n=2))
    engine.add_request("plain", [1, 2, 3], params())
    backend.let_go.set()
    found = {}
    while engine.has_unfinished_requests():
        run(engine, found)
    assert found["bad"].finish_reason == FinishReason.ERROR.value
    assert found["plain"].token_ids == expected_ids([1, 2, 3], params())
    engine.add_request("bad", [1], params())  # its id is free again
    with pytest.raises(
        SamplingParamsError, match=r"structured_outputs\.regex.*no such"
    ):
        engine.add_request("again", [1], params("bad"))


def test_aborted_while_its_grammar_is_compiled(engine, backend):
    engine.add_request("slow", [1, 2, 3], params("good"))
    (group,) = engine._waiting._groups.values()
    assert group.requests[0].status is RequestStatus.WAITING_FOR_GRAMMAR
    engine.abort_request("slow")
    assert not engine.has_unfinished_requests()
    backend.let_go.set()
    assert engine.step() == []
    engine.add_request("slow", [1, 2, 3], params())


def test_a_broken_step_leaves_it_waiting(engine, backend, expected_ids):
    engine.add_request("slow", [1, 2, 3], params("good"))
    engine.add_request("plain", [1, 2, 3], params())
    engine.step()
    collect = engine.runner.collect

    def fail(handle):
        raise OSError("device lost")

    engine.runner.collect = fail
    with pytest.raises(OSError, match="device lost"):
        engine.step()
    engine.runner.collect = collect
    backend.let_go.set()
    found = {}
    while engine.has_unfinished_requests():
        run(engine, found)
    wanted = expected_ids([1, 2, 3], params())
    assert {name: done.token_ids for name, done in found.items()} == {
        "slow": wanted,
        "plain": wanted,
    }


def test_without_a_compiler_grammars_are_refused(make_engine):
    engine = make_engine()
    with pytest.raises(UnsupportedError, match="tokenizer"):
        engine.add_request("a", [1], params("good"))
    assert not engine.has_unfinished_requests()
