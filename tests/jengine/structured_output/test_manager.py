import threading

import pytest

from jengine.structured_output import manager as manager_module
from jengine.structured_output.constraint import BadWords, GrammarError
from jengine.structured_output.manager import GrammarManager
from jengine.structured_outputs import StructuredOutputsParams

A, B = (StructuredOutputsParams(regex=text) for text in "ab")


class Backend:
    """Compiles `a` and refuses all else; notes who compiled what."""

    def __init__(self):
        self.compiled = []

    def compile(self, params):
        self.compiled.append((params.regex, threading.current_thread()))
        if params.regex != "a":
            raise GrammarError("no")
        return params.regex

    def constraint(self, compiled, stop_token_ids):
        return BadWords([stop_token_ids])


def test_each_grammar_is_compiled_once_and_not_on_this_thread():
    backends = []

    def make():
        backends.append(Backend())
        return backends[-1]

    manager = GrammarManager(make)
    assert backends == []
    results = [manager.submit(A).result() for _ in range(3)]
    assert [result.grammar for result in results] == ["a"] * 3
    (backend,) = backends
    ((regex, thread),) = backend.compiled
    assert regex == "a"
    assert thread is not threading.current_thread()
    first, second = (results[0].constraint([1, 2]) for _ in range(2))
    assert first is not second


def test_a_grammar_that_fails_fails_again_and_hurts_no_other():
    manager = GrammarManager(Backend)
    for _ in range(2):
        with pytest.raises(GrammarError, match="no"):
            manager.submit(B).result()
    assert manager.submit(A).result().grammar == "a"


def test_a_grammar_that_never_ends_is_given_up(monkeypatch):
    monkeypatch.setattr(manager_module, "_LONGEST_COMPILE_S", 0.05)
    let_go = threading.Event()
    stuck = []

    class Stuck(Backend):
        def compile(self, params):
            if params.regex == "b":
                stuck.append(threading.current_thread())
                let_go.wait(60)
            return super().compile(params)

    manager = GrammarManager(Stuck)
    for _ in range(2):  # the second time it is not even tried
        with pytest.raises(GrammarError, match="simplify"):
            manager.submit(B).result()
    (thread,) = stuck
    assert thread.is_alive()
    assert thread.daemon
    monkeypatch.undo()
    assert manager.submit(A).result().grammar == "a"
    let_go.set()
    thread.join(60)


def test_a_panic_of_the_compiler_is_an_error_of_its_grammar():
    class Panic(BaseException):
        pass

    class Panicking(Backend):
        def compile(self, params):
            if params.regex == "b":
                raise Panic("index out of bounds")
            return super().compile(params)

    manager = GrammarManager(Panicking)
    with pytest.raises(GrammarError, match="index out of bounds"):
        manager.submit(B).result()
    assert manager.submit(A).result().grammar == "a"
