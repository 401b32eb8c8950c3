"""Servers with OpenAI's interface, asked over HTTP and read as a stream."""

import dataclasses
import itertools
import json
import time
from collections.abc import Mapping
from typing import Any

from jengine.bench.bench_request import BenchRequest
from jengine.bench.serve.outcome import Outcome
from jengine.bench.serve.sse import DONE, EventReader
from jengine.errors import InvalidValueError, UnsupportedError

_LONGEST_BODY = 300  # characters of an error's body that are kept


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where and how to ask.

    Attributes:
      url: of the route.
      model: name that the server knows.
      is_chat: whether prompts go as messages of a user.
      ignore_eos: whether an output has its full length in any case.
      headers: of each HTTP request.
      body: further fields of each request, such as a temperature.
    """

    url: str
    model: str
    is_chat: bool = False
    ignore_eos: bool = False
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    body: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def payload(self, request: BenchRequest) -> dict[str, Any]:
        """Return the JSON object to send.

        Raises:
          InvalidValueError: a chat with a prompt of which only the ids are known.
        """
        fields: dict[str, Any] = {
            "model": self.model,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.ignore_eos:
            fields["ignore_eos"] = True
        if not self.is_chat:
            prompt = list(request.token_ids) or request.text
            fields |= {"prompt": prompt, "max_tokens": request.output_tokens}
            return {**fields, **self.body}
        if request.text is None:
            raise InvalidValueError("the prompt", "ids", "text, for a chat")
        fields["messages"] = [{"role": "user", "content": request.text}]
        fields["max_completion_tokens"] = request.output_tokens
        return {**fields, **self.body}


class HttpTarget:
    """Sends requests through one session of aiohttp."""

    def __init__(self, session: Any, endpoint: Endpoint) -> None:
        """Send nothing yet.

        Args:
          session: an `aiohttp.ClientSession`.
          endpoint: where and how to ask.
        """
        self._session = session
        self._endpoint = endpoint

    async def send(self, request: BenchRequest, since: float) -> Outcome:
        """Send a request and read its stream; see `Target`."""
        start = time.perf_counter()
        reading = _Reading(self._endpoint.is_chat, start)
        outcome = Outcome(prompt_tokens=request.prompt_tokens, start_s=start - since)
        try:
            error = await self._read(request, reading)
        except Exception as failure:  # any: the load goes on
            error = f"{type(failure).__name__}: {failure}"
        if error is None and not reading.times:
            error = "the stream ended without a token"
        return dataclasses.replace(outcome, **reading.fields(), error=error)

    async def _read(self, request: BenchRequest, reading: "_Reading") -> str | None:
        endpoint = self._endpoint
        async with self._session.post(
            endpoint.url, json=endpoint.payload(request), headers=endpoint.headers
        ) as response:
            if response.status != 200:
                body = (await response.text())[:_LONGEST_BODY]
                return f"{response.status} {response.reason}: {body}".strip()
            events = EventReader()
            async for piece in response.content.iter_any():
                now = time.perf_counter()
                for data in events.feed(piece):
                    if data != DONE and (error := reading.take(data, now)):
                        return error
        return None


class _Reading:
    """What has been read of one stream."""

    def __init__(self, is_chat: bool, start: float) -> None:
        self._is_chat = is_chat
        self._start = start
        self.times: list[float] = []
        self.texts: list[str] = []
        self.usage: Mapping[str, Any] = {}

    def take(self, data: str, now: float) -> str | None:
        """Take in an event; return the error that it tells of."""
        event = json.loads(data)
        if event.get("error"):
            return f"the server says {json.dumps(event['error'])[:_LONGEST_BODY]}"
        self.usage = event.get("usage") or self.usage
        for choice in event.get("choices") or ():
            text = self._text(choice)
            is_last = choice.get("finish_reason") is not None
            # A first event may name the role alone, a last one the reason of the end:
            # that is a piece only where the end was the whole output.
            if text or (not self.times if is_last else not self._is_chat):
                self.times.append(now)
                self.texts.append(text)
        return None

    def fields(self) -> dict[str, Any]:
        """Return the fields of an outcome that are known now."""
        found: dict[str, Any] = {"text": "".join(self.texts)}
        found["output_tokens"] = self.usage.get("completion_tokens") or len(self.times)
        if "prompt_tokens" in self.usage:
            found["prompt_tokens"] = self.usage["prompt_tokens"]
        if self.times:
            found["ttft_s"] = self.times[0] - self._start
            found["latency_s"] = self.times[-1] - self._start
            pairs = itertools.pairwise(self.times)
            found["itl_s"] = tuple(later - earlier for earlier, later in pairs)
        return found

    def _text(self, choice: Mapping[str, Any]) -> str:
        if not self._is_chat:
            return choice.get("text") or ""
        delta = choice.get("delta") or {}
        return (delta.get("content") or "") + (delta.get("reasoning_content") or "")


def open_session(*, timeout_s: float, verify: bool = True) -> Any:
    """Return a session of aiohttp that waits and connects as a load needs it.

    Args:
      timeout_s: longest that one request may take.
      verify: whether a server's certificate is checked.

    Raises:
      UnsupportedError: aiohttp is not installed.
    """
    try:
        import aiohttp
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            "asking servers needs aiohttp: pip install aiohttp"
        ) from error
    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=timeout_s),
        connector=aiohttp.TCPConnector(limit=0, ssl=verify),
        trust_env=False,  # a proxy would be measured too
    )
