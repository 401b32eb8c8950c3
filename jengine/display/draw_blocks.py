"""The block map: who holds which KV block, now or after each step of a run."""

from collections.abc import Iterable, Sequence
from typing import Any

from jengine.core.block_pool import NULL_BLOCK
from jengine.core.cache_manager import CacheManager
from jengine.display.history import PoolState, pool_states, state_of
from jengine.display.picture import Picture, colours_of, literal, new_figure, write_on
from jengine.errors import InvalidValueError
from jengine.recording import RecordedRun

_MOST_LINES = 16  # steps in one picture unless they are named
_MOST_INCHES = 14.0
_MOST_NAMED = 12
_MOST_NUMBERED = 40
_FREE, _KEPT = "#F2F2F2", "#C8C8C8"


def block_map(
    source: Any, *, steps: Iterable[int] | None = None, title: str | None = None
) -> Picture:
    """Draw the blocks of a pool, coloured by the requests that hold them.

    A block that several requests hold shows all their colours. How much of a block is
    coloured is how full it is, where that is known. Free blocks are pale; those of them
    that keep their content for the prefix cache are grey.

    Args:
      source: an `LLM`, an `LLMEngine`, a `Scheduler` or its `cache`, as it stands; or
        a `RecordedRun`, of which each line shows the state after one step.
      steps: numbers of the steps of a run to draw; left out it is all of them, or 16
        spread evenly.
      title: of the picture.

    Raises:
      UnsupportedError: matplotlib is not installed.
      InvalidValueError: nothing to draw.
    """
    states = _states(source, steps)
    if not states:
        raise InvalidValueError("the number of steps to draw", 0, "at least one")
    last = max((_last_block(state) for state in states), default=0)
    num_shown = min(max(state.num_blocks for state in states), last + 2)
    width = min(_MOST_INCHES, max(6.0, 3.0 + 0.45 * num_shown))
    figure = new_figure(width, 1.5 + 0.45 * len(states))
    axes = figure.subplots()
    colours = colours_of(name for state in states for name in state.tables)
    for line, state in enumerate(states):
        _draw_state(axes, line, state, num_shown, colours)
    names = ["now" if state.step is None else str(state.step) for state in states]
    axes.set_yticks(range(len(states)), names)
    axes.set(
        xlabel=f"block ({states[0].block_size} tokens each)",
        ylabel="after step" if states[0].step is not None else "",
        xlim=(-0.6, num_shown - 0.4),
        ylim=(len(states) - 0.45, -0.55),
    )
    axes.set_title(title or "who holds which block", loc="left", fontsize=11)
    axes.tick_params(length=0)
    if num_shown <= _MOST_NUMBERED:
        axes.set_xticks(range(num_shown))
    axes.spines[["top", "right", "left", "bottom"]].set_visible(False)
    _add_legend(figure, states, colours)
    return Picture(figure)


def _states(source: Any, steps: Iterable[int] | None) -> list[PoolState]:
    if isinstance(source, RecordedRun):
        states = list(pool_states(source))
        if steps is not None:
            wanted = set(steps)
            return [state for state in states if state.step in wanted]
        return _spread(states, _MOST_LINES)
    if isinstance(source, CacheManager):
        return [state_of(source)]
    owner = getattr(source, "llm_engine", source)
    if not isinstance(getattr(owner, "cache", None), CacheManager):
        raise InvalidValueError("source", source, "an LLM, an engine or a RecordedRun")
    return [state_of(owner.cache)]


def _spread(states: Sequence[PoolState], most: int) -> list[PoolState]:
    """Return at most so many, evenly spaced, the first and the last among them."""
    if len(states) <= most:
        return list(states)
    step = (len(states) - 1) / (most - 1)
    return [states[round(i * step)] for i in range(most)]


def _last_block(state: PoolState) -> int:
    return max((*state.owners, *state.kept), default=0)


def _draw_state(
    axes: Any, line: int, state: PoolState, num_shown: int, colours: dict[str, str]
) -> None:
    owners, fill = state.owners, state.fill
    for block_id in range(num_shown):
        _tile(axes, block_id, line, 1.0, _KEPT if block_id in state.kept else _FREE)
        if block_id == NULL_BLOCK:
            write_on(axes, block_id, line, "null", size=7)
            continue
        names = owners.get(block_id, ())
        for index, name in enumerate(names):
            share = fill[block_id] / len(names)
            left = index * share
            _tile(axes, block_id, line, share, colours[name], left)
        if names and num_shown <= _MOST_NUMBERED:
            # Long names would run into each other; the legend has them.
            label = "+".join(names) if len("+".join(names)) <= 6 else ""
            write_on(axes, block_id, line, label)


def _tile(
    axes: Any, block_id: int, line: int, share: float, colour: str, left: float = 0.0
) -> None:
    axes.barh(
        line, 0.9 * share, left=block_id - 0.45 + 0.9 * left, height=0.8, color=colour
    )


def _add_legend(
    figure: Any, states: Sequence[PoolState], colours: dict[str, str]
) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=_FREE, label="free")]
    if any(state.kept for state in states):
        handles.insert(0, Patch(color=_KEPT, label="free, content kept"))
    if len(colours) <= _MOST_NAMED:
        handles = [
            Patch(color=colour, label=literal(f"request {name}"))
            for name, colour in colours.items()
        ] + handles
    figure.legend(handles=handles, loc="outside right upper", frameon=False, fontsize=9)
