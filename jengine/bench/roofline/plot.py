"""A roofline as a picture: steps, the two limits, and the knee."""

import os
from typing import Any

from jengine.bench.roofline.roofline import RooflineResult
from jengine.display.picture import new_figure


def plot_roofline(result: RooflineResult, path: str | os.PathLike[str]) -> None:
    """Write a PNG.

    Args:
      result: what was measured.
      path: of the file.

    Raises:
      UnsupportedError: matplotlib is not installed.
    """
    figure = new_figure(7, 4.5)
    axes = figure.subplots()
    batches = [point.batch for point in result.points]
    milliseconds = [point.seconds * 1e3 for point in result.points]
    axes.plot(batches, milliseconds, "o-", label="measured", zorder=3)
    memory = [point.memory_s * 1e3 for point in result.points]
    compute = [point.compute_s * 1e3 for point in result.points]
    gb, gf = result.limits.bytes_per_s / 1e9, result.limits.flops_per_s / 1e9
    axes.plot(batches, memory, "--", label=f"bytes moved at {gb:.1f} GB/s")
    axes.plot(batches, compute, ":", label=f"arithmetic at {gf:.0f} GFLOP/s")
    floor = [point.floor_s * 1e3 for point in result.points]
    bottom = min(memory + compute) * 0.5
    axes.fill_between(
        batches, floor, bottom, alpha=0.1, color="grey", label="faster than the machine"
    )
    axes.axvline(result.knee, color="grey", linewidth=0.8)
    axes.text(
        result.knee,
        0.95,
        f" knee, measured: {result.knee:.0f}",
        transform=axes.get_xaxis_transform(),  # x of the data, y of the picture
        color="grey",
    )
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="requests that decode together",
        ylim=(bottom, None),
        ylabel="step, ms",
        title=f"decode steps, context {result.context}",
    )
    axes.set_xticks(batches, [str(batch) for batch in batches])
    axes.minorticks_off()
    _label_plainly(axes.yaxis)
    axes.legend(loc="lower right")
    figure.savefig(path, format="png", dpi=120)


def _label_plainly(axis: Any) -> None:
    """Write 0.5, 1 and 2 rather than powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
