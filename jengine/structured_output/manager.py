"""Compiles grammars beside the step loop, and gives each request its own state."""

import concurrent.futures
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

from jengine.structured_output.constraint import Constraint
from jengine.structured_outputs import StructuredOutputsParams

_MOST_KEPT = 256  # compiled grammars


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
    """Compiles each grammar once, on a thread of its own."""

    def __init__(self, make_backend: Callable[[], GrammarBackend]) -> None:
        """Start nothing yet.

        Args:
          make_backend: called once, on the first grammar: reading a tokenizer takes
            about a second.
        """
        self._make_backend = functools.cache(make_backend)
        self._compile_once = functools.lru_cache(_MOST_KEPT)(self._compile)
        self._pool = concurrent.futures.ThreadPoolExecutor(
            max_workers=1, thread_name_prefix="grammar"
        )

    def submit(
        self, params: StructuredOutputsParams
    ) -> "concurrent.futures.Future[Compiled]":
        """Start compiling; the result raises GrammarError if that fails."""
        return self._pool.submit(self._compile_once, params)

    def _compile(self, params: StructuredOutputsParams) -> Compiled:
        backend = self._make_backend()
        return Compiled(backend, backend.compile(params))
