"""Runs an engine's loop on a thread of its own.

The engine is for one thread only. Others hand over functions to be run between two
steps and get their results as futures; outputs go to one listener, on the engine's
thread. Without requests the thread sleeps until something is handed over.
"""

import concurrent.futures
import logging
import queue
import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar, runtime_checkable

from jengine.engine import LLMEngine
from jengine.outputs import RequestOutput

logger = logging.getLogger(__name__)

T = TypeVar("T")


class EngineStoppedError(RuntimeError):
    """The engine has failed or was shut down; it is not the fault of a request."""


@runtime_checkable
class Listener(Protocol):
    """Who is told, on the engine's thread, what comes of requests."""

    def deliver(self, outputs: list[RequestOutput]) -> Iterable[str]:
        """Take a step's outputs; return the ids of requests that nobody waits for."""
        ...

    def fail(self, error: BaseException) -> Iterable[str]:
        """Tell all who wait that their request failed; return the requests' ids."""
        ...


class EngineThread:
    """The only user of an engine, from the time that it is made."""

    def __init__(self, engine: LLMEngine, listener: Listener) -> None:
        """Start the thread.

        Args:
          engine: nobody else may touch it until the thread has stopped.
          listener: gets all outputs.
        """
        self._engine = engine
        self._listener = listener
        self._commands: queue.SimpleQueue[_Command | None] = queue.SimpleQueue()
        self._end: BaseException | None = None  # set when the thread takes no more
        self._thread = threading.Thread(
            target=self._run,
            name="jengine-engine",
            daemon=True,  # who forgets to stop it can still leave the program
        )
        self._thread.start()

    @property
    def failure(self) -> BaseException | None:
        """What ended the thread; None while it runs."""
        return self._end

    def call(self, work: Callable[[LLMEngine], T]) -> "concurrent.futures.Future[T]":
        """Run a function between two steps.

        May be called on any thread, by finalisers too: nothing is locked or waited
        for. Functions are run in the order of the calls.

        Returns:
          Its result, or what it raised, or `EngineStoppedError` if the thread ended.
        """
        command = _Command(work)
        self._commands.put(command)
        if self._end is not None:
            self._refuse_commands(self._end)
        return command.future

    def stop(self) -> None:
        """End the thread after the step that it is in, and all requests with it."""
        self._commands.put(None)
        if threading.current_thread() is not self._thread:  # of a finaliser
            self._thread.join()

    def _run(self) -> None:
        end: BaseException = EngineStoppedError("the engine was shut down")
        try:
            while self._obey():
                self._step()
        except BaseException as error:  # nobody may wait for a thread that is gone
            logger.exception("the engine's thread ends")
            end = error
        self._end = end
        self._end_requests(end)
        self._refuse_commands(end)

    def _obey(self) -> bool:
        """Run what was handed over; return whether to go on."""
        wait = not self._engine.has_unfinished_requests()
        while True:
            try:
                command = self._commands.get(block=wait)
            except queue.Empty:
                return True
            if command is None:
                return False
            command.run(self._engine)
            wait = False

    def _step(self) -> None:
        if not self._engine.has_unfinished_requests():
            return
        try:
            outputs = self._engine.step()
        except Exception as error:
            logger.exception("a step failed: its requests end, the engine starts over")
            self._engine.abort_request(self._listener.fail(error))
            return
        unread = list(self._listener.deliver(outputs)) if outputs else []
        if unread:
            self._engine.abort_request(unread)

    def _end_requests(self, error: BaseException) -> None:
        try:
            self._engine.abort_request(self._listener.fail(error))
        except Exception:
            logger.exception("the engine could not end its requests")

    def _refuse_commands(self, error: BaseException) -> None:
        while True:
            try:
                command = self._commands.get(block=False)
            except queue.Empty:
                return
            if command is not None:
                command.refuse(error)


class _Command:
    """A function to be run with the engine, and the future of its result."""

    def __init__(self, work: Callable[[LLMEngine], Any]) -> None:
        self.future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._work = work

    def run(self, engine: LLMEngine) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            result = self._work(engine)
        except BaseException as error:  # the caller's, whatever it is
            self.future.set_exception(error)
        else:
            self.future.set_result(result)

    def refuse(self, error: BaseException) -> None:
        if self.future.set_running_or_notify_cancel():
            refusal = EngineStoppedError(f"the engine has stopped: {error}")
            refusal.__cause__ = error
            self.future.set_exception(refusal)
