"""Steps one engine for calls that each wait for outputs of their own.

Calls and streams of an `LLM` share its engine: whoever is asked for an output steps it,
for all, and takes what is its own; the rest waits in the engine for its owner. Requests
whose caller has gone are aborted, whatever made it go.

Threads take turns, by a lock that whoever calls holds until its call is over. It is a
plain `RLock` in plain `with` statements, which no interrupt can leave locked.
"""

import itertools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from jengine.engine import LLMEngine
from jengine.errors import JengineError
from jengine.outputs import RequestOutput
from jengine.prompts import ParsedPrompt
from jengine.sampling_params import SamplingParams


class LostRequestError(JengineError):
    """A stream's request was aborted, or others took its outputs from the engine."""


class AskedRequest(NamedTuple):
    """What is asked of the engine, checked already; arguments of `LLMEngine.queue`."""

    prompt: ParsedPrompt
    token_ids: Sequence[int]
    params: SamplingParams
    priority: int = 0


class Stream(Iterator[RequestOutput]):
    """The outputs of one request, one at a time; an iterator.

    The request runs along whenever the engine steps, for whomever. Its blocks are
    freed when it ends, and as soon as the stream is closed, breaks off or is dropped.

    Attributes:
      request_id: the request's id in the engine.
    """

    def __init__(self, loop: "OfflineLoop", request_id: str) -> None:
        """Make a stream of a request that is about to be queued."""
        self.request_id = request_id
        self._loop = loop
        self._ready: list[RequestOutput] = []
        self._is_over = False

    def __next__(self) -> RequestOutput:
        """Return the next output, stepping the engine until there is one.

        Raises:
          LostRequestError: nothing more can come, although the request has not ended.
        """
        with self._loop.lock:
            if self._is_over:
                raise StopIteration
            try:
                while not self._ready:
                    self._ready = self._loop.next_outputs(self.request_id)
                output = self._ready.pop(0)
                if output.finished:
                    self._end()
            except BaseException:
                self._end()
                raise
            return output

    @property
    def is_over(self) -> bool:
        """Whether it was read to its end, closed or broke off."""
        return self._is_over

    def close(self) -> None:
        """End the request if it has not ended; then the iteration is over.

        It waits for nobody, for generators that read a stream are closed by the garbage
        collector on any thread: amid another thread's call it is left to that call to
        end the request, at its next step.
        """
        if not self._is_over:
            self._is_over = True
            self._loop.end_if_free(self.request_id)

    def _end(self) -> None:
        self._is_over = True  # first, so that the next call ends it if this cannot
        self._loop.end((self.request_id,))

    def __del__(self) -> None:
        if not self._is_over:
            self._loop.abandon(self.request_id)


class OfflineLoop:
    """Whoever waits for outputs of one engine, on any threads.

    Attributes:
      lock: to be held by whoever uses the engine, for the length of a call; a call
        within a call of the same thread has it already.
    """

    def __init__(self, engine: LLMEngine) -> None:
        """Make a loop without callers."""
        self.lock = threading.RLock()
        self._engine = engine
        self._numbers = itertools.count()
        self._unfinished: set[str] = set()  # requests of a `run` that goes on
        self._streams: dict[str, weakref.ref[Stream]] = {}
        self._thread = threading.get_ident()

    def run(
        self,
        requests: Sequence[AskedRequest],
        on_finished: Callable[[RequestOutput], object],
    ) -> list[RequestOutput]:
        """Run requests to their end.

        Args:
          requests: their params ask for final outputs only.
          on_finished: told of each output as it comes.

        Returns:
          One output for each request, in their order.
        """
        with self.lock:
            self._end_abandoned()
            request_ids = [self._new_request_id() for _ in requests]
            self._unfinished.update(request_ids)
            try:
                for request_id, request in zip(request_ids, requests, strict=True):
                    self._engine.queue(request_id, *request)
                found = self._finish(request_ids, on_finished)
            except BaseException:
                self._end_abandoned()
                raise
            self._unfinished.clear()
            return [found[request_id] for request_id in request_ids]

    def stream(self, request: AskedRequest) -> Stream:
        """Queue a request and return its outputs to come."""
        with self.lock:
            self._end_abandoned()
            stream = Stream(self, self._new_request_id())
            self._streams[stream.request_id] = weakref.ref(stream)
            self._engine.queue(stream.request_id, *request)
            return stream

    def next_outputs(self, request_id: str) -> list[RequestOutput]:
        """Return what there is of a stream's request, else what a step brings.

        The stream holds the lock.

        Raises:
          LostRequestError: nothing more can come.
        """
        self._end_abandoned()
        outputs = self._engine.take((request_id,))
        if outputs:
            return outputs
        self._engine.advance()
        outputs = self._engine.take((request_id,))
        if not outputs and not self._engine.has_request(request_id):
            raise LostRequestError(
                f"the rest of request {request_id} is lost: it was aborted, or its"
                " outputs were taken by who stepped the engine directly"
            )
        return outputs

    def end(self, request_ids: Sequence[str]) -> None:
        """Abort requests, if they have not ended, and forget them; under the lock."""
        self._engine.abort_request(request_ids)
        for request_id in request_ids:
            self._streams.pop(request_id, None)

    def abandon(self, request_id: str) -> None:
        """End the request of a stream that is being dropped, now or with the next call.

        The garbage collector may call this on any thread and amid anything, even a
        step of this very engine.
        """
        if threading.get_ident() == self._thread:
            self.end_if_free(request_id)

    def end_if_free(self, request_id: str) -> None:
        """End the request of a stream that is over, if the engine is in nobody's hands.

        Nothing is waited for; who has the engine or gets it next will end it.
        """
        held: list[bool] = []
        try:
            # In one call of C, for an interrupt must not come between lock and note.
            held.extend(map(self.lock.acquire, (False,)))
            if True in held and not self._engine.is_changing:
                self.end((request_id,))
        finally:
            if True in held:
                self.lock.release()

    def _end_abandoned(self) -> None:
        """Abort what calls and streams left behind that broke off or were dropped.

        It comes first in every call, because whatever cleans up can be interrupted.
        """
        self._thread = threading.get_ident()
        left = (*self._unfinished, *self._left_streams())
        if left:
            self.end(left)
            self._unfinished.clear()

    def _left_streams(self) -> list[str]:
        return [name for name in tuple(self._streams) if self._is_left(name)]

    def _is_left(self, request_id: str) -> bool:
        ref = self._streams.get(request_id)
        if ref is None:
            return False
        stream = ref()
        return stream is None or stream.is_over

    def _new_request_id(self) -> str:
        ids = (str(number) for number in self._numbers)
        return next(i for i in ids if not self._engine.has_request(i))

    def _finish(
        self,
        request_ids: Sequence[str],
        on_finished: Callable[[RequestOutput], object],
    ) -> dict[str, RequestOutput]:
        found: dict[str, RequestOutput] = {}
        while len(found) < len(request_ids):
            if not self._engine.has_unfinished_requests():
                raise LostRequestError(
                    "requests were aborted while they were waited for"
                )
            left = self._left_streams()  # by other threads, which cannot end them now
            if left:
                self.end(left)
            self._engine.advance()
            for output in self._engine.take(self._unfinished):
                if output.finished:
                    found[output.request_id] = output
                    on_finished(output)
        return found
