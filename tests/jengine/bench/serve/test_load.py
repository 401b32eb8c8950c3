import asyncio

import pytest

from jengine.bench.bench_request import BenchRequest
from jengine.bench.serve.load import NotReadyError, run_load, wait_until_ready
from jengine.bench.serve.outcome import Outcome
from jengine.errors import InvalidValueError


class FakeTarget:
    """Answers when the test lets it; notes when it was asked."""

    def __init__(self, *, seconds=0.0, errors=()):
        self.seconds, self.errors = seconds, list(errors)
        self.sent, self.now, self.most = [], 0, 0

    async def send(self, request, since):
        self.sent.append((request.prompt_tokens, asyncio.get_running_loop().time()))
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(self.seconds)
        self.now -= 1
        error = self.errors.pop(0) if self.errors else None
        return Outcome(prompt_tokens=request.prompt_tokens, start_s=0.0, error=error)


def requests(count):
    return [BenchRequest(prompt_tokens=i, output_tokens=1) for i in range(count)]


def test_requests_are_sent_when_they_are_due():
    async def run():
        loop = asyncio.get_running_loop()
        start = loop.time()
        target = FakeTarget()
        done = await run_load(target, requests(3), [0.0, 0.02, 0.05])
        return [(number, at - start) for number, at in target.sent], done

    sent, done = asyncio.run(run())
    assert [number for number, _ in sent] == [0, 1, 2]
    for (_, at), due in zip(sent, [0.0, 0.02, 0.05], strict=True):
        assert at >= due - 0.005  # a busy machine may be late, never early
    assert done.duration_s >= 0.045
    assert [outcome.prompt_tokens for outcome in done.outcomes] == [0, 1, 2]


def test_no_more_than_so_many_at_a_time():
    target, seen = FakeTarget(seconds=0.002), []
    done = asyncio.run(
        run_load(target, requests(9), [0.0] * 9, max_concurrency=3, on_done=seen.append)
    )
    assert target.most == 3
    assert len(seen) == len(done.outcomes) == 9


def test_all_at_once_without_a_limit():
    target = FakeTarget(seconds=0.01)
    asyncio.run(run_load(target, requests(7), [0.0] * 7))
    assert target.most == 7


def test_nothing_to_send():
    with pytest.raises(InvalidValueError, match="at least one"):
        asyncio.run(run_load(FakeTarget(), [], []))


def test_waiting_for_a_server():
    target = FakeTarget(errors=["refused", "refused"])
    asyncio.run(wait_until_ready(target, requests(1)[0], 60.0, pause_s=0.001))
    assert len(target.sent) == 3
    target = FakeTarget(errors=["refused"] * 10**4)
    with pytest.raises(NotReadyError, match="the last error: refused"):
        asyncio.run(wait_until_ready(target, requests(1)[0], 0.01, pause_s=0.002))
