"""Compiles grammars beside the step loop, and gives each request its own state."""

import concurrent.futures
import functools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

from jengine.structured_output.constraint import Constraint, GrammarError
from jengine.structured_outputs import StructuredOutputsParams

_MOST_KEPT = 256  # compiled grammars

# Large schemas take seconds; what takes longer than this most likely never ends.
_LONGEST_COMPILE_S = 60.0


@runtime_checkable
class GrammarBackend(Protocol):
    """Who compiles grammars; see `guidance.GuidanceGrammars`."""

    def compile(self, params: StructuredOutputsParams) -> Any:
        """Return what requests with equal parameters share.

        Raises:
          GrammarError: it cannot be compiled.
        """
        ...

    def constraint(self, compiled: Any, stop_token_ids: Any) -> Constraint:
        """Return the state of one request."""
        ...


class Compiled(NamedTuple):
    """A compiled grammar and who compiled it."""

    backend: GrammarBackend
    grammar: Any

    def constraint(self, stop_token_ids: Any) -> Constraint:
        """Return the state of one request."""
        return self.backend.constraint(self.grammar, stop_token_ids)


class GrammarManager:
    """Compiles each grammar once, beside the caller's thread.

    One that takes too long is given up. Its thread cannot be ended: it is left behind,
    and the next grammar gets another.
    """

    def __init__(self, make_backend: Callable[[], GrammarBackend]) -> None:
        """Start nothing yet.

        Args:
          make_backend: called once, on the first grammar: reading a tokenizer takes
            about a second.
        """
        self._make_backend = functools.cache(make_backend)
        self._compile_once = functools.lru_cache(_MOST_KEPT)(self._compile)
        self._pool = concurrent.futures.ThreadPoolExecutor(
            max_workers=1, thread_name_prefix="grammars"
        )
        self._given_up: set[StructuredOutputsParams] = set()

    def submit(
        self, params: StructuredOutputsParams
    ) -> "concurrent.futures.Future[Compiled]":
        """Start compiling; the result raises GrammarError if that fails."""
        return self._pool.submit(self._compile_once, params)

    def _compile(self, params: StructuredOutputsParams) -> Compiled:
        backend = self._make_backend()
        if params not in self._given_up:
            grammar = _Beside(lambda: backend.compile(params))
            if grammar.is_over(_LONGEST_COMPILE_S):
                return Compiled(backend, grammar.result())
            self._given_up.add(params)  # a second try would leave a second thread
        raise GrammarError(
            f"it takes longer than {_LONGEST_COMPILE_S:g} seconds to compile, or for"
            " ever; simplify it"
        )


class _Beside:
    """Work on a thread that does not keep the process alive."""

    def __init__(self, work: Callable[[], Any]) -> None:
        """Start it."""
        self._work = work
        self._result: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, name="grammar", daemon=True)
        self._thread.start()

    def is_over(self, timeout_s: float) -> bool:
        """Wait for its end, but not longer than that."""
        self._thread.join(timeout_s)
        return self._result.done()

    def result(self) -> Any:
        """Return what it returned, or raise what it raised."""
        return self._result.result()

    def _run(self) -> None:
        try:
            self._result.set_result(self._work())
        except Exception as error:
            self._result.set_exception(error)
        except BaseException as error:  # a panic in Rust is no Exception
            refusal = GrammarError(f"the compiler breaks down on it: {error}")
            self._result.set_exception(refusal)
