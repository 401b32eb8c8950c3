"""A histogram while it is filled, and the limits of its buckets: vLLM's."""

import bisect
from collections.abc import Mapping, Sequence

from jengine.metrics import Histogram

REQUEST_S = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0,
    120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
FIRST_TOKEN_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0,
    7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
BETWEEN_TOKENS_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
    10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
COMPLETIONS = (1, 2, 5, 10, 20)
# Of a step, which vLLM has no histograms for: from 10 us to 10 s, 1-2-5.
STEP_S = (
    1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2,
    0.5, 1.0, 2.0, 5.0, 10.0,
)  # fmt: skip


def token_limits(most: int) -> tuple[int, ...]:
    """Return 1, 2, 5, 10, 20, 50, ... as far as `most`.

    >>> token_limits(100)
    (1, 2, 5, 10, 20, 50, 100)
    """
    found = (
        digit * 10**power for power in range(len(str(most))) for digit in (1, 2, 5)
    )
    return tuple(limit for limit in found if limit <= most)


class Spread:
    """Counts observations in buckets; one costs a search among the limits."""

    __slots__ = ("_counts", "_limits", "_sum")

    def __init__(self, limits: Sequence[float | int]) -> None:
        """Count nothing yet.

        Args:
          limits: the largest value of each bucket, in rising order; a last bucket
            takes what is larger.
        """
        self._limits = tuple(limits)
        self._counts = [0] * (len(limits) + 1)
        self._sum = 0.0

    def observe(self, value: float | int, times: int = 1) -> None:
        """Count a value so many times."""
        self._counts[bisect.bisect_left(self._limits, value)] += times
        self._sum += value * times

    def value(self, name: str, labels: Mapping[str, str]) -> Histogram:
        """Return what has been counted."""
        buckets, total = {}, 0
        for limit, count in zip((*self._limits, None), self._counts, strict=True):
            total += count
            buckets["+Inf" if limit is None else str(float(limit))] = total
        return Histogram(name, labels, total, self._sum, buckets)
