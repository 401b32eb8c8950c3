"""Who is asked: anything that turns a request into an outcome."""

from typing import Protocol, runtime_checkable

from jengine.bench.bench_request import BenchRequest
from jengine.bench.serve.outcome import Outcome


@runtime_checkable
class Target(Protocol):
    """Takes requests, many at a time."""

    async def send(self, request: BenchRequest, since: float) -> Outcome:
        """Send a request and read its outputs to the end; failures are outcomes.

        Args:
          request: what to ask.
          since: start of the load, by `time.perf_counter`.
        """
        ...
