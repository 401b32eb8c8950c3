import threading

import pytest

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
