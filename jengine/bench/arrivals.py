"""When requests are sent: a constant or rising rate, more or less in bursts. Pure."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from jengine.errors import InvalidValueError

RampUp = Literal["linear", "exponential"]


def arrival_times(
    count: int, *, rate: float, burstiness: float = 1.0, seed: int = 0
) -> list[float]:
    """Return when each of `count` requests is sent, in seconds after the start.

    The gaps are Gamma distributed with shape `burstiness` and mean 1 / rate: 1 is a
    Poisson process, less comes in bursts, more is more even. They are then scaled so
    that the last request is sent exactly at count / rate, as in vLLM.

    Args:
      count: number of requests.
      rate: requests per second; infinity sends all at once.
      burstiness: shape of the distribution.
      seed: other seeds draw other gaps.

    Raises:
      InvalidValueError: a rate or burstiness of 0 or below.
    """
    _check_positive(rate=rate, burstiness=burstiness)
    if np.isinf(rate) or not count:
        return [0.0] * count
    times = np.cumsum(_gaps(np.full(count, rate), burstiness, seed))
    if not 0 < times[-1] < np.inf:  # a burstiness so low that all gaps are 0
        return [0.0] * count
    return (times / times[-1] * (count / rate)).tolist()


def ramp_up_times(
    count: int,
    *,
    strategy: RampUp,
    start_rate: float,
    end_rate: float,
    burstiness: float = 1.0,
    seed: int = 0,
) -> list[float]:
    """Return when each request is sent while the rate goes from one to another.

    Args:
      count: number of requests.
      strategy: whether the rate changes by equal steps or by equal factors.
      start_rate: requests per second at the first request.
      end_rate: requests per second at the last request.
      burstiness: as for `arrival_times`.
      seed: as for `arrival_times`.

    Raises:
      InvalidValueError: a rate or burstiness of 0 or below, or an infinite rate.
    """
    _check_positive(start_rate=start_rate, end_rate=end_rate, burstiness=burstiness)
    for name, rate in (("start_rate", start_rate), ("end_rate", end_rate)):
        if np.isinf(rate):
            raise InvalidValueError(name, rate, "finite, for a ramp")
    spaced = np.linspace if strategy == "linear" else np.geomspace
    rates = spaced(start_rate, end_rate, max(1, count))[:count]
    return np.cumsum(_gaps(rates, burstiness, seed)).tolist()


def offered_rate(times: Sequence[float]) -> float:
    """Return the requests per second of a schedule; infinity if all come at once."""
    return len(times) / times[-1] if times and times[-1] > 0 else float("inf")


def _gaps(rates: np.ndarray, burstiness: float, seed: int) -> np.ndarray:
    if np.isinf(burstiness):
        return 1.0 / rates
    rng = np.random.default_rng(seed)
    return rng.gamma(burstiness, 1.0 / (rates * burstiness))


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise InvalidValueError(name, value, "above 0")
