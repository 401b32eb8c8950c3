"""Sends requests when they are due, and no more than so many at a time."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from jengine.bench.bench_request import BenchRequest
from jengine.bench.serve.outcome import Outcome
from jengine.bench.serve.target import Target
from jengine.errors import InvalidValueError, JengineError


class LoadRun(NamedTuple):
    """What a load brought.

    Attributes:
      outcomes: of the requests, in their order.
      duration_s: from the start to the end of the last one.
    """

    outcomes: list[Outcome]
    duration_s: float


class NotReadyError(JengineError):
    """The server did not answer in time."""


async def run_load(
    target: Target,
    requests: Sequence[BenchRequest],
    times: Sequence[float],
    *,
    max_concurrency: int | None = None,
    on_done: Callable[[Outcome], object] = lambda _: None,
) -> LoadRun:
    """Send each request at its time and wait for all of them.

    The limit is one of the client: a request that waits for it has not been sent, so
    that its wait is in no figure of its own, as in vLLM's benchmark.

    Args:
      target: who is asked.
      requests: at least one.
      times: when each is due, in seconds after the start, in rising order.
      max_concurrency: most requests at a time; None is no limit.
      on_done: called with each outcome as it comes.

    Raises:
      InvalidValueError: there are no requests.
    """
    if not requests:
        raise InvalidValueError("requests", 0, "at least one")
    gate = asyncio.Semaphore(max_concurrency) if max_concurrency else None
    start = time.perf_counter()

    async def send(request: BenchRequest) -> Outcome:
        async with gate or contextlib.nullcontext():
            outcome = await target.send(request, start)
        on_done(outcome)
        return outcome

    tasks: list[asyncio.Task[Outcome]] = []
    for request, due in zip(requests, times, strict=True):
        left = due - (time.perf_counter() - start)
        if left > 0:
            await asyncio.sleep(left)
        tasks.append(asyncio.create_task(send(request)))
    outcomes = await asyncio.gather(*tasks)
    return LoadRun(outcomes, time.perf_counter() - start)


async def wait_until_ready(
    target: Target,
    request: BenchRequest,
    timeout_s: float,
    *,
    pause_s: float = 1.0,
) -> None:
    """Send one request again and again until it succeeds.

    Raises:
      NotReadyError: it never did; the message has its last error.
    """
    end = time.perf_counter() + timeout_s
    while True:
        outcome = await target.send(request, time.perf_counter())
        if outcome.error is None:
            return
        if time.perf_counter() + pause_s > end:
            raise NotReadyError(
                f"no answer in {timeout_s:g} s; the last error: {outcome.error}"
            )
        await asyncio.sleep(pause_s)
