"""Figures drawn from many durations: means, percentiles, goodput. Pure."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from jengine.errors import InvalidValueError

SLO_NAMES = ("ttft", "tpot", "e2el")


@dataclasses.dataclass(frozen=True, slots=True)
class Summary:
    """Many values in few; all in the unit of the values, 0 where there were none.

    Attributes:
      mean: arithmetic mean.
      median: half of the values are at most that.
      std: standard deviation, of the values themselves.
      percentiles: (percent, value), interpolated linearly as by numpy.
    """

    mean: float
    median: float
    std: float
    percentiles: tuple[tuple[float, float], ...]


def summarise(
    values: Sequence[float], percents: Sequence[float | int] = (99.0,)
) -> Summary:
    """Return the figures of some values.

    >>> summarise([1.0, 2.0, 3.0, 4.0], [50, 99]).percentiles
    ((50.0, 2.5), (99.0, 3.97))
    """
    array = np.asarray(values if len(values) else [0.0], np.float64)
    found = np.percentile(array, list(percents)).round(12) if percents else ()
    return Summary(
        mean=float(array.mean()),
        median=float(np.median(array)),
        std=float(array.std()),
        percentiles=tuple(
            (float(percent), float(value))
            for percent, value in zip(percents, found, strict=True)
        ),
    )


def parse_slos(texts: Sequence[str]) -> dict[str, float]:
    """Return service level objectives in seconds, from `ttft:200`, in milliseconds.

    Raises:
      InvalidValueError: another form, or a name that is not in `SLO_NAMES`.
    """
    found = {}
    for text in texts:
        name, _, value = text.partition(":")
        try:
            seconds = float(value) / 1000
        except ValueError:
            seconds = -1.0
        if name not in SLO_NAMES or not seconds >= 0:
            allowed = f"NAME:MILLISECONDS, with NAME one of {', '.join(SLO_NAMES)}"
            raise InvalidValueError("goodput", text, allowed)
        found[name] = seconds
    return found


def count_good(
    slos: Mapping[str, float], durations: Mapping[str, Sequence[float]]
) -> int:
    """Return how many requests meet all objectives.

    Args:
      slos: the longest duration allowed, by name; at least one.
      durations: of each request, by name.
    """
    chosen = [(slos[name], durations[name]) for name in slos]
    return sum(
        all(one <= most for most, one in zip(slos.values(), request, strict=True))
        for request in zip(*(values for _, values in chosen), strict=True)
    )


def tpot(latency_s: float, ttft_s: float, output_tokens: int) -> float | None:
    """Return the seconds per token after the first; None for fewer than two."""
    if output_tokens < 2:
        return None
    return (latency_s - ttft_s) / (output_tokens - 1)
