"""A grid over engine options, each point measured: the first half of auto-tuning."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from jengine.bench.text_table import format_table
from jengine.bench.throughput import ThroughputResult


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """One combination of options.

    Attributes:
      options: of the engine, beyond those that all points share.
      result: what was measured; None if the engine could not do it.
      error: why; None if it could.
    """

    options: Mapping[str, Any]
    result: ThroughputResult | None = None
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        result = None if self.result is None else self.result.to_dict()
        return {"options": dict(self.options), "result": result, "error": self.error}


def grid_points(grid: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Yield all combinations; the last option changes fastest.

    >>> list(grid_points({"a": [1, 2], "b": [True]}))
    [{'a': 1, 'b': True}, {'a': 2, 'b': True}]
    """
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def run_sweep(
    grid: Mapping[str, Sequence[Any]],
    measure: Callable[[Mapping[str, Any]], ThroughputResult],
    on_point: Callable[[SweepPoint], object] = lambda _: None,
) -> list[SweepPoint]:
    """Measure every combination; one that fails is a point with its error.

    Args:
      grid: option -> values to try.
      measure: builds an engine with these options, measures it and lets it go.
      on_point: called with each point as it comes.
    """
    points = []
    for options in grid_points(grid):
        points.append(_measure_point(options, measure))
        on_point(points[-1])
    return points


def best_point(points: Sequence[SweepPoint]) -> SweepPoint | None:
    """Return the point of most output tokens per second; None if all failed."""
    done = [point for point in points if point.result is not None]
    return max(done, key=_rate, default=None)


def format_sweep(points: Sequence[SweepPoint]) -> str:
    """Return a table, the best point marked."""
    names = list(points[0].options) if points else []
    best = best_point(points)
    header = [*names, "req/s", "tok/s", "output tok/s", ""]
    rows = [
        [*(str(point.options[name]) for name in names), *_cells(point), mark]
        for point in points
        for mark in ("best" if point is best else "",)
    ]
    return format_table(header, rows)


def _measure_point(
    options: dict[str, Any], measure: Callable[[Mapping[str, Any]], ThroughputResult]
) -> SweepPoint:
    try:
        return SweepPoint(options=options, result=measure(options))
    except Exception as error:  # any: the other points go on
        return SweepPoint(options=options, error=f"{type(error).__name__}: {error}")


def _rate(point: SweepPoint) -> float:
    return 0.0 if point.result is None else point.result.output_tokens_per_second


def _cells(point: SweepPoint) -> list[str]:
    if point.result is None:
        return ["failed", "-", "-"]
    result = point.result
    rates = (
        result.requests_per_second,
        result.tokens_per_second,
        result.output_tokens_per_second,
    )
    return [f"{rate:.2f}" for rate in rates]
