"""The client against a server of this file, which answers as OpenAI's would."""

import asyncio
import contextlib
import json
import sys

import pytest

from jengine.bench.bench_request import BenchRequest
from jengine.bench.serve.http_target import Endpoint, HttpTarget, open_session
from jengine.errors import InvalidValueError, UnsupportedError

aiohttp = pytest.importorskip("aiohttp")
web = pytest.importorskip("aiohttp.web")

REQUEST = BenchRequest(token_ids=(1, 2, 3), prompt_tokens=3, output_tokens=5)


def completion(text, **fields):
    choice = {"index": 0, "text": text, "finish_reason": None} | fields
    return {"choices": [choice]}


def usage(prompt, output):
    counts = {"prompt_tokens": prompt, "completion_tokens": output}
    return {"choices": [], "usage": counts}


def chat(**delta):
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


class Server:
    """Streams what the test tells it to, and keeps what it was asked."""

    def __init__(self, *chunks, status=200, body="", cut=False):
        self.chunks, self.status, self.body, self.cut = chunks, status, body, cut
        self.asked = []

    async def answer(self, request):
        self.asked.append((request.path, dict(request.headers), await request.json()))
        if self.status != 200:
            return web.Response(status=self.status, text=self.body)
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in self.chunks:
            data = chunk if isinstance(chunk, str) else json.dumps(chunk)
            await response.write(f"data: {data}\n\n".encode())
        if self.cut:
            request.transport.abort()
        return response

    @contextlib.asynccontextmanager
    async def serving(self):
        app = web.Application()
        app.router.add_post("/{path:.*}", self.answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


def send(server, request=REQUEST, **options):
    async def run():
        async with server.serving() as url, open_session(timeout_s=60.0) as session:
            endpoint = Endpoint(url=f"{url}/v1/completions", model="m", **options)
            return await HttpTarget(session, endpoint).send(request, 0.0)

    return asyncio.run(run())


def test_a_stream_of_completions():
    chunks = [completion("Hel"), completion("lo "), completion("world"), usage(4, 5)]
    server = Server(*chunks, "[DONE]")
    found = send(server, ignore_eos=True, headers={"x-a": "b"}, body={"top_p": 0.5})
    assert found.error is None
    assert found.text == "Hello world"
    # The server counts tokens; three pieces held five of them.
    assert (found.prompt_tokens, found.output_tokens, len(found.itl_s)) == (4, 5, 2)
    assert 0 < found.ttft_s <= found.latency_s
    assert found.latency_s == pytest.approx(found.ttft_s + sum(found.itl_s))
    ((path, headers, body),) = server.asked
    assert path == "/v1/completions"
    assert headers["x-a"] == "b"
    assert body == {
        "model": "m",
        "prompt": [1, 2, 3],
        "max_tokens": 5,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
        "top_p": 0.5,
    }


def test_without_usage_pieces_are_counted():
    last = completion("", finish_reason="stop")
    found = send(Server(completion("a"), completion(""), completion("b"), last))
    assert (found.prompt_tokens, found.output_tokens, found.text) == (3, 3, "ab")


def test_an_end_without_text_is_an_output():
    found = send(Server(completion("", finish_reason="stop"), usage(4, 1), "[DONE]"))
    assert (found.error, found.text, found.output_tokens) == (None, "", 1)
    assert found.ttft_s == found.latency_s > 0
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    text = BenchRequest(text="Hello", prompt_tokens=1, output_tokens=7)
    found = send(Server(chat(role="assistant"), end), text, is_chat=True)
    assert (found.error, found.output_tokens, found.itl_s) == (None, 1, ())


def test_a_chat():
    chunks = [
        chat(role="assistant", content=""),  # no token yet
        chat(reasoning_content="hm"),
        chat(content="hi"),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        usage(9, 2),
    ]
    server = Server(*chunks, "[DONE]")
    text = BenchRequest(text="Hello", prompt_tokens=1, output_tokens=7)
    found = send(server, text, is_chat=True)
    assert (found.text, len(found.itl_s), found.output_tokens) == ("hmhi", 1, 2)
    body = server.asked[0][2]
    assert body["messages"] == [{"role": "user", "content": "Hello"}]
    assert body["max_completion_tokens"] == 7
    assert "prompt" not in body


@pytest.mark.parametrize(
    ("server", "message"),
    [
        (Server(status=503, body="overloaded"), "503 Service Unavailable: overloaded"),
        (Server(completion("a"), {"error": {"message": "oops"}}), "oops"),
        (Server("[DONE]"), "without a token"),
        (Server(completion("a"), "no json"), "JSONDecodeError"),
        (Server(completion("a"), cut=True), "ClientPayloadError|ClientConnection"),
    ],
)
def test_a_failure_is_an_outcome(server, message):
    found = send(server)
    assert found.error is not None
    assert any(one in found.error for one in message.split("|"))


def test_nobody_listens():
    async def run():
        async with open_session(timeout_s=60.0) as session:
            endpoint = Endpoint(url="http://127.0.0.1:1/v1/completions", model="m")
            return await HttpTarget(session, endpoint).send(REQUEST, 0.0)

    assert "ClientConnectorError" in (asyncio.run(run()).error or "")


def test_a_chat_needs_text():
    endpoint = Endpoint(url="u", model="m", is_chat=True)
    with pytest.raises(InvalidValueError, match="text, for a chat"):
        endpoint.payload(REQUEST)


def test_text_prompts():
    text = BenchRequest(text="Hello", prompt_tokens=1, output_tokens=7)
    assert Endpoint(url="u", model="m").payload(text)["prompt"] == "Hello"


def test_without_aiohttp_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(UnsupportedError, match="pip install aiohttp"):
        open_session(timeout_s=1.0)
