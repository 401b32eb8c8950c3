"""Compiles programs a few ahead of their use, since a GPU waits for compilers."""

import concurrent.futures
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

_THREADS = 8


class Compiled(NamedTuple):
    """A program and what it cost to get.

    Attributes:
      program: ready to be called.
      seconds: that its compilation took, beside others on other threads.
    """

    program: Callable[..., Any]
    seconds: float


class CompileAhead:
    """Lowers on the calling thread, compiles on others, in the order given."""

    def __init__(
        self, lowerings: Mapping[str, Callable[[], Any]], *, threads: int = _THREADS
    ) -> None:
        """Compile nothing yet.

        Args:
          lowerings: for each name a function that returns a lowered program, in the
            order in which programs will be asked for.
          threads: programs that are compiled at a time; 1 compiles each when it is
            asked for and not before, so that a compiler that aborts the process
            does so in the case that it belongs to.
        """
        self._waiting = dict(lowerings)
        self._threads = threads
        self._pool = concurrent.futures.ThreadPoolExecutor(threads)
        self._begun: dict[str, concurrent.futures.Future[Compiled]] = {}

    def get(self, name: str) -> Compiled:
        """Return a program, once.

        Raises:
          Exception: whatever its lowering or its compilation raised.
        """
        if name in self._waiting:
            self._begin(name)
        ahead = self._threads - len(self._begun)
        for other in list(self._waiting)[: max(0, ahead)]:
            self._begin(other)
        return self._begun.pop(name).result()

    def _begin(self, name: str) -> None:
        lower = self._waiting.pop(name)
        try:
            lowered = lower()
        except Exception as error:  # it belongs to the case that asks for it
            failed: concurrent.futures.Future[Compiled] = concurrent.futures.Future()
            failed.set_exception(error)
            self._begun[name] = failed
            return
        self._begun[name] = self._pool.submit(_compile, lowered)


def _compile(lowered: Any) -> Compiled:
    start = time.perf_counter()
    program = lowered.compile()
    return Compiled(program, time.perf_counter() - start)
