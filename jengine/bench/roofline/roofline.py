"""Measured steps beside the limits of the machine, as one frozen result."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from jengine.aot.cost import ModelSizes, StepShape, Work, step_work
from jengine.bench.roofline.knee import find_crossing, fit_knee
from jengine.bench.roofline.limits import Limits
from jengine.bench.roofline.steps import time_decode_steps
from jengine.bench.text_table import format_table


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One batch size.

    Attributes:
      batch: requests that decode together.
      seconds: of a step, measured.
      memory_s: least seconds for the bytes that it must move.
      compute_s: least seconds for its arithmetic.
    """

    batch: int
    seconds: float
    memory_s: float
    compute_s: float

    @property
    def floor_s(self) -> float:
        """Least seconds that the machine's limits allow."""
        return max(self.memory_s, self.compute_s)

    @property
    def tokens_per_s(self) -> float:
        """Tokens generated per second."""
        return self.batch / self.seconds

    @property
    def share(self) -> float:
        """Share of the limit that is reached."""
        return self.floor_s / self.seconds


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RooflineResult:
    """A roofline and what was measured below it.

    Attributes:
      context: tokens of each request.
      limits: of the machine.
      points: by rising batch size.
      knee: batch size up to which steps take about the same time, as measured.
      predicted_knee: batch size from which arithmetic takes longer than memory, by
        the limits; None if there is none.
    """

    context: int
    limits: Limits
    points: tuple[Point, ...]
    knee: float
    predicted_knee: int | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        plain = dataclasses.asdict(self)
        for point, fields in zip(self.points, plain["points"], strict=True):
            fields["tokens_per_s"] = point.tokens_per_s
            fields["share_of_limit"] = point.share
        return plain

    def __str__(self) -> str:
        """Return a table for a terminal."""
        header = ["batch", "step ms", "limit ms", "limited by", "reached", "tok/s"]
        rows = [
            [
                str(p.batch),
                f"{p.seconds * 1e3:.2f}",
                f"{p.floor_s * 1e3:.2f}",
                "memory" if p.memory_s >= p.compute_s else "arithmetic",
                f"{p.share:.0%}",
                f"{p.tokens_per_s:.1f}",
            ]
            for p in self.points
        ]
        predicted = "none" if self.predicted_knee is None else str(self.predicted_knee)
        return (
            f"memory {self.limits.bytes_per_s / 1e9:.1f} GB/s, products "
            f"{self.limits.flops_per_s / 1e9:.1f} GFLOP/s, context {self.context}\n\n"
            f"{format_table(header, rows)}\n"
            f"knee: measured at batch {self.knee:.0f}, by the limits {predicted}"
        )


def measure_roofline(
    llm: Any,
    work_of: Callable[[int], Work],
    limits: Limits,
    *,
    batches: Sequence[int],
    context: int = 128,
    steps: int = 20,
    on_point: Callable[[Point], object] = lambda _: None,
) -> RooflineResult:
    """Measure decode steps at several batch sizes and set them beside the limits.

    Args:
      llm: an `LLM` with room for the largest batch.
      work_of: what a step of so many rows must do; see `decode_work`.
      limits: of the machine.
      batches: sizes to measure.
      context: tokens of each request.
      steps: that are measured for each size.
      on_point: called with each size's figures as they come.
    """
    points = []
    for batch in sorted(set(batches)):
        seconds = time_decode_steps(llm, batch, context=context, steps=steps)
        points.append(make_point(batch, seconds, work_of(batch), limits))
        on_point(points[-1])
    return RooflineResult(
        context=context,
        limits=limits,
        points=tuple(points),
        knee=fit_knee([p.batch for p in points], [p.seconds for p in points]),
        predicted_knee=find_crossing(
            lambda batch: work_of(batch).bytes_moved / limits.bytes_per_s,
            lambda batch: work_of(batch).flops / limits.flops_per_s,
        ),
    )


def decode_work(sizes: ModelSizes, batch: int, *, context: int, itemsize: int) -> Work:
    """Return what a step of decoding rows must do."""
    shape = StepShape(tokens=batch, logit_rows=batch, context=context)
    return step_work(sizes, shape, itemsize=itemsize)


def make_point(batch: int, seconds: float, work: Work, limits: Limits) -> Point:
    """Return a batch size's figures."""
    return Point(
        batch=batch,
        seconds=seconds,
        memory_s=work.bytes_moved / limits.bytes_per_s,
        compute_s=work.flops / limits.flops_per_s,
    )
