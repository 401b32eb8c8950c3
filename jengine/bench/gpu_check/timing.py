"""Device time of calls, each of which needs the result of the one before.

Such a chain is dispatched ahead of the device, so that what the host does for a call
is hidden behind the device's work on earlier ones, unless a call takes less than the
host needs for it: then many calls belong into one compiled program.
"""

import math
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

_MOST_ADVANCES = 2000


class Timing(NamedTuple):
    """Seconds of one call, over several samples.

    Attributes:
      seconds: median over the samples.
      fastest: the least.
      slowest: the most.
      samples: how many.
      calls: dependent calls in one sample, over which its time is averaged.
    """

    seconds: float
    fastest: float
    slowest: float
    samples: int
    calls: int

    def fields(self) -> dict[str, float | int]:
        """Return what a record says of it."""
        return {
            "seconds": self.seconds,
            "fastest_s": self.fastest,
            "slowest_s": self.slowest,
            "samples": self.samples,
            "calls_per_sample": self.calls,
        }


def time_chain(
    advance: Callable[[Any], Any],
    state: Any,
    *,
    calls: int = 1,
    samples: int = 7,
    sample_s: float = 0.03,
    advances: int | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Timing:
    """Time a compiled function whose result is its next argument.

    Args:
      advance: returns the next state before the device has made it.
      state: the first one.
      calls: dependent calls that one `advance` stands for.
      samples: how often to measure.
      sample_s: least seconds of a sample; its number of advances follows from it.
      advances: of a sample, instead.
      clock: seconds.

    Returns:
      Seconds of one call. Nothing of the first two advances counts.
    """
    state = jax.block_until_ready(advance(state))
    start = clock()
    state = jax.block_until_ready(advance(state))
    once = max(clock() - start, 1e-9)
    if advances is None:
        advances = min(_MOST_ADVANCES, math.ceil(sample_s / once))
    times = []
    for _ in range(samples):
        start = clock()
        for _ in range(advances):
            state = advance(state)
        state = jax.block_until_ready(state)
        times.append((clock() - start) / (advances * calls))
    return Timing(
        statistics.median(times), min(times), max(times), samples, advances * calls
    )
