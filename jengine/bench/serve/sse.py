"""Server-sent events, as far as OpenAI's streams use them."""

import codecs
from collections.abc import Iterator

DONE = "[DONE]"


class EventReader:
    """Cuts a stream of bytes, in pieces of any size, into the data of its events."""

    def __init__(self) -> None:
        """Begin with a stream's first byte."""
        # A character may be cut in two by the network.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[str]:
        """Yield the data of the events that this piece completes."""
        self._rest += self._decoder.decode(piece)
        *lines, self._rest = self._rest.split("\n")
        for line in lines:
            yield from self._take(line.removesuffix("\r"))

    def _take(self, line: str) -> Iterator[str]:
        if line.startswith("data:"):
            self._data.append(line[5:].removeprefix(" "))
        elif not line and self._data:
            data, self._data = "\n".join(self._data), []
            yield data
        # Comments, which keep a connection open, and other fields say nothing here.
