"""From the engine's thread to the event loops that wait for outputs.

A `Switchboard` belongs to the engine's thread and knows who reads which request; an
`OutputStream` belongs to the event loop on which it was made. Only
`call_soon_threadsafe` connects them, once a step for each loop.
"""

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable, Iterable
from typing import NamedTuple

from jengine.engine import LLMEngine
from jengine.engine_thread import EngineStoppedError
from jengine.outputs import RequestOutput, merge_outputs


class OutputStream(AsyncIterator[RequestOutput]):
    """The outputs of one request, for the event loop on which it was made.

    What comes while nobody reads is merged into one output, so a slow reader gets
    fewer and larger ones and misses nothing. A stream that is closed or dropped ends
    its request; a reader that is only cancelled may go on reading.

    Attributes:
      request_id: the request's id.
    """

    def __init__(self, request_id: str, *, has_deltas: bool) -> None:
        """Make a stream without a request.

        Args:
          request_id: whose outputs they are.
          has_deltas: whether an output holds only what is new.
        """
        self.request_id = request_id
        self._has_deltas = has_deltas
        self._unread: RequestOutput | None = None
        self._error: BaseException | None = None
        self._is_over = False
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._release: weakref.finalize | None = None

    def ends_with(self, release: Callable[[], object]) -> None:
        """Have a function called, on any thread, if this is left before the end.

        Args:
          release: must not refer to this stream.
        """
        self._release = weakref.finalize(self, release)
        self._release.atexit = False

    def put(self, news: RequestOutput | BaseException) -> None:
        """Take an output, or what keeps further ones from coming."""
        if isinstance(news, BaseException):
            self._error = news
        elif self._unread is None:
            self._unread = news
        else:
            earlier = self._unread
            self._unread = merge_outputs(earlier, news, are_deltas=self._has_deltas)
        self._news.set()

    async def __anext__(self) -> RequestOutput:
        """Wait for what is new.

        Raises:
          EngineStoppedError: the engine failed or was shut down.
          RuntimeError: this is another event loop; it would wait for ever.
        """
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError(
                f"request {self.request_id} was added on another event loop; read its"
                " outputs there"
            )
        while not self._is_over:
            output, self._unread = self._unread, None
            if output is not None:
                if output.finished:
                    self._end()
                return output
            if self._error is not None:
                self._end()
                raise EngineStoppedError(
                    f"request {self.request_id} ended with the engine: {self._error}"
                ) from self._error
            self._news.clear()
            await self._news.wait()
        raise StopAsyncIteration

    def close(self) -> None:
        """End the request if it has not ended; then the iteration is over."""
        self._is_over = True
        self._news.set()  # whoever waits for an output need not any more
        if self._release is not None:
            self._release()  # once at most

    def _end(self) -> None:
        self._is_over = True
        if self._release is not None:
            self._release.detach()


class Reader(NamedTuple):
    """Who reads a request: a stream that may be dropped, on a loop that may close."""

    loop: asyncio.AbstractEventLoop
    stream: "weakref.ref[OutputStream]"


class Switchboard:
    """Who reads which request; for the engine's thread only."""

    def __init__(self) -> None:
        """Start without readers."""
        self._readers: dict[str, Reader] = {}

    def connect(self, request_id: str, reader: Reader) -> None:
        """Pass a request's outputs to a reader from now on."""
        self._readers[request_id] = reader

    def release(self, engine: LLMEngine, request_id: str, reader: Reader) -> None:
        """Abort a request that its reader has left, if it has not ended."""
        if self._readers.get(request_id) is reader:
            del self._readers[request_id]
            engine.abort_request(request_id)

    def abort(self, engine: LLMEngine, request_ids: Iterable[str]) -> None:
        """Abort requests; their readers get what there is as a last output."""
        known = [one for one in request_ids if one in self._readers]
        self.deliver(engine.abort_request(known))

    def deliver(self, outputs: list[RequestOutput]) -> list[str]:
        """Pass outputs on.

        Returns:
          Requests whose readers can no longer be reached.
        """
        news = [(output.request_id, output) for output in outputs]
        unreached = self._send(news)
        for output in outputs:
            if output.finished:
                self._readers.pop(output.request_id, None)
        return unreached

    def fail(self, error: BaseException) -> list[str]:
        """Tell all readers that no more will come.

        Returns:
          The ids of their requests.
        """
        request_ids = list(self._readers)
        self._send([(request_id, error) for request_id in request_ids])
        self._readers.clear()
        return request_ids

    def _send(
        self, news: Iterable[tuple[str, RequestOutput | BaseException]]
    ) -> list[str]:
        parcels: dict[asyncio.AbstractEventLoop, _Parcel] = {}
        for request_id, one in news:
            reader = self._readers.get(request_id)
            if reader is not None:
                parcels.setdefault(reader.loop, []).append((reader.stream, one))
        closed = {loop for loop, parcel in parcels.items() if not _post(loop, parcel)}
        if not closed:
            return []
        unreached = [i for i, one in self._readers.items() if one.loop in closed]
        for request_id in unreached:
            del self._readers[request_id]
        return unreached


_Parcel = list[tuple["weakref.ref[OutputStream]", RequestOutput | BaseException]]


def _post(loop: asyncio.AbstractEventLoop, parcel: _Parcel) -> bool:
    """Hand outputs to a loop; False if it is closed."""
    try:
        loop.call_soon_threadsafe(_unpack, parcel)
    except RuntimeError:
        return False
    return True


def _unpack(parcel: _Parcel) -> None:
    """Give the outputs to those who are still there; on the loop's own thread."""
    for ref, news in parcel:
        stream = ref()
        if stream is not None:
            stream.put(news)
