"""The timeline of a run: which request ran how many tokens in which step."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from jengine.core.plan import ScheduledRequest, StepPlan
from jengine.display.picture import Picture, colours_of, literal, new_figure, write_on
from jengine.errors import InvalidValueError
from jengine.recording import RecordedRun

_MOST_LABELLED = 48  # steps; beyond it numbers would overlap
_MOST_NAMED = 12  # requests in the legend
_MOST_INCHES = 14.0


class Cell(NamedTuple):
    """One row of one plan, as it is drawn.

    Attributes:
      request_id: whose row it is.
      line: number of the line that it is drawn on, from the top.
      column: index of its step in the run.
      num_tokens: that the row ran.
      num_cached: tokens found in the prefix cache on admission.
      samples: whether it yields a token.
      is_preempted: whether the request was preempted after it.
    """

    request_id: str
    line: int
    column: int
    num_tokens: int
    num_cached: int
    samples: bool
    is_preempted: bool


def timeline(
    run: RecordedRun,
    *,
    by: str = "seat",
    title: str | None = None,
) -> Picture:
    """Draw the rows of each step, coloured by request, and the tokens of each step.

    A cell is one row of one step; its number is the tokens that it ran. Rows of several
    tokens (prompts, or chunks of them) are hatched; "+8" is what the prefix cache had;
    a cross is a preemption behind that step.

    Args:
      run: what was recorded.
      by: what a line is: a "seat", which requests hold in turn, or a "request".
      title: of the picture.

    Raises:
      UnsupportedError: matplotlib is not installed.
      InvalidValueError: the run has no steps, or `by` is something else.
    """
    if by not in ("seat", "request"):
        raise InvalidValueError("by", by, "'seat' or 'request'")
    if not run.plans:
        raise InvalidValueError("the number of steps of the run", 0, "at least one")
    cells = timeline_cells(run.plans, by=by)
    lines = _line_names(run.plans, by)
    steps = len(run.plans)
    width = min(_MOST_INCHES, max(6.0, 2.2 + 0.42 * steps))
    figure = new_figure(width, 2.6 + 0.36 * len(lines))
    above, below = figure.subplots(
        2, 1, sharex=True, height_ratios=[0.9, max(1.0, 0.36 * len(lines))]
    )
    _draw_totals(above, run.plans)
    _draw_cells(below, cells, labelled=steps <= _MOST_LABELLED)
    below.set_yticks(range(len(lines)), list(map(literal, lines)))
    below.set_ylim(len(lines) - 0.4, -0.6)
    below.set(xlabel="step", ylabel=by, xlim=(-0.6, steps - 0.4))
    marked = range(0, steps, max(1, -(-steps // _MOST_LABELLED)))
    below.set_xticks(marked, [str(run.plans[index].step) for index in marked])
    above.set_title(title or "what each step ran", loc="left", fontsize=11)
    _add_legend(figure, cells)
    return Picture(figure)


def timeline_cells(plans: Sequence[StepPlan], *, by: str = "seat") -> list[Cell]:
    """Return what a timeline shows, step by step."""
    lines = {name: i for i, name in enumerate(_line_names(plans, by))}
    ends = _preempted_after(plans)
    return [
        Cell(
            request_id=row.request_id,
            line=lines[_line_name(row, by)],
            column=index,
            num_tokens=row.num_tokens,
            num_cached=row.num_computed_tokens if row.options is not None else 0,
            samples=row.samples,
            is_preempted=(row.request_id, index) in ends,
        )
        for index, plan in enumerate(plans)
        for row in plan.rows
    ]


def _preempted_after(plans: Sequence[StepPlan]) -> set[tuple[str, int]]:
    """Return requests and the last steps that they ran in before a preemption."""
    last: dict[str, int] = {}
    found: set[tuple[str, int]] = set()
    for index, plan in enumerate(plans):
        found |= {(name, last[name]) for name in plan.preempted_ids if name in last}
        last |= {row.request_id: index for row in plan.rows}
    return found


def _line_names(plans: Sequence[StepPlan], by: str) -> list[str]:
    names = dict.fromkeys(_line_name(row, by) for plan in plans for row in plan.rows)
    return sorted(names, key=int) if by == "seat" else list(names)


def _line_name(row: ScheduledRequest, by: str) -> str:
    return str(row.seat) if by == "seat" else row.request_id


def _draw_totals(axes: Any, plans: Sequence[StepPlan]) -> None:
    totals = [plan.num_tokens for plan in plans]
    bars = axes.bar(range(len(plans)), totals, width=0.9, color="#9a9a9a")
    if len(plans) <= _MOST_LABELLED:
        axes.bar_label(bars, fontsize=8, padding=1)
    axes.margins(y=0.3)
    axes.set_ylabel("tokens")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelbottom=False)


def _draw_cells(axes: Any, cells: Sequence[Cell], *, labelled: bool) -> None:
    colours = colours_of(cell.request_id for cell in cells)
    for cell in cells:
        colour = colours[cell.request_id]
        is_long = cell.num_tokens > 1
        axes.barh(
            cell.line,
            0.92,
            left=cell.column - 0.46,
            height=0.8,
            color=colour,
            edgecolor="white" if is_long else colour,
            hatch="////" if is_long else None,
            linewidth=0,
        )
        if labelled:
            text = str(cell.num_tokens)
            if cell.num_cached:
                text += f"\n+{cell.num_cached}"
            write_on(axes, cell.column, cell.line, text)
        if cell.is_preempted:
            axes.plot(
                cell.column + 0.5, cell.line, "X", color="black", markersize=8, zorder=4
            )
    axes.spines[["top", "right"]].set_visible(False)


def _add_legend(figure: Any, cells: Sequence[Cell]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    colours = colours_of(cell.request_id for cell in cells)
    handles: list[Any] = []
    if len(colours) <= _MOST_NAMED:
        handles += [
            Patch(color=colour, label=literal(f"request {name}"))
            for name, colour in colours.items()
        ]
    grey = {"facecolor": "#777777", "linewidth": 0}
    if any(cell.num_tokens > 1 for cell in cells):
        handles.append(
            Patch(**grey, hatch="////", edgecolor="white", label="several tokens")
        )
    handles.append(Patch(**grey, label="one token"))
    if any(cell.num_cached for cell in cells):
        handles.append(
            Line2D([], [], linestyle="", marker="$+8$", color="black", markersize=12,
                   label="found in the cache")
        )  # fmt: skip
    if any(cell.is_preempted for cell in cells):
        handles.append(
            Line2D([], [], linestyle="", marker="X", color="black", markersize=8,
                   label="preempted then")
        )  # fmt: skip
    figure.legend(handles=handles, loc="outside right upper", frameon=False, fontsize=9)
