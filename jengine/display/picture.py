"""Figures without pyplot's global state, which show themselves in notebooks."""

import dataclasses
import io
import os
from collections.abc import Iterable
from typing import Any

from jengine.errors import UnsupportedError

_DPI = 100
# Okabe and Ito's colours, which all eyes tell apart, and five more.
COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442",
    "#8C6BB1", "#A6761D", "#66C2A5", "#B2B2B2", "#E7298A",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Picture:
    """A finished figure.

    Attributes:
      figure: matplotlib's own, to be changed or saved in other ways.
    """

    figure: Any

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file; its ending says in which format."""
        self.figure.savefig(path, dpi=_DPI)

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        # Without metadata, equal pictures are equal bytes.
        self.figure.savefig(buffer, format="png", dpi=_DPI, metadata={"Software": None})
        return buffer.getvalue()


def new_figure(width: float | int, height: float | int) -> Any:
    """Make an empty figure.

    Args:
      width: in inches.
      height: in inches.

    Raises:
      UnsupportedError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            "pictures need matplotlib: pip install '.[notebook]' in the checkout, or "
            "pip install matplotlib"
        ) from error
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)  # no window, and nothing that other figures would share
    return figure


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """Give each name a colour, in order; they repeat after twelve."""
    distinct = dict.fromkeys(names)
    return {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(distinct)}


def literal(text: str) -> str:
    """Return text that matplotlib draws as it is, and not as a formula."""
    return text.replace("$", r"\$")


def write_on(
    axes: Any, x: float | int, y: float | int, text: str, *, size: int = 8
) -> None:
    """Write black letters with a white edge, which can be read on any colour."""
    from matplotlib.patheffects import withStroke

    edge = [withStroke(linewidth=2.2, foreground="white")]
    axes.text(
        x, y, literal(text), ha="center", va="center", fontsize=size, linespacing=0.95,
        path_effects=edge,
    )  # fmt: skip
