"""Logprobs as a picture: what else each token could have been."""

import math
from typing import Any

from jengine.display.picture import Picture, literal, new_figure
from jengine.errors import InvalidValueError
from jengine.outputs import CompletionOutput, RequestOutput

_MOST_TOKENS = 40


def logprob_map(
    output: RequestOutput | CompletionOutput, *, title: str | None = None
) -> Picture:
    """Draw the most probable tokens of each position, and which one was drawn.

    Args:
      output: made with `SamplingParams(logprobs=k)`; of several completions the first
        is drawn, and of a long one the first 40 tokens.
      title: of the picture.

    Raises:
      UnsupportedError: matplotlib is not installed.
      InvalidValueError: no logprobs were asked for, there are no tokens, or values
        are logits.
    """
    one = output.outputs[0] if isinstance(output, RequestOutput) else output
    if not one.logprobs:
        raise InvalidValueError(
            "the output's logprobs",
            one.logprobs,
            "what SamplingParams(logprobs=5) asks",
        )
    columns = [position or {} for position in one.logprobs[:_MOST_TOKENS]]
    _check(columns)
    most = max(map(len, columns))
    figure = new_figure(max(4.5, 1.6 + 0.62 * len(columns)), 1.7 + 0.42 * most)
    axes = figure.subplots()
    image = _shares(columns, most)
    shown = axes.imshow(image, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    for x, (position, drawn) in enumerate(zip(columns, one.token_ids, strict=False)):
        for y, (token_id, entry) in enumerate(position.items()):
            _label(axes, x, y, entry, is_drawn=token_id == drawn)
    axes.set_xticks(range(len(columns)))
    axes.set_yticks(range(most), _ranks(columns, most))
    axes.set(xlabel="position in the output", ylabel="best first")
    axes.tick_params(axis="y", length=0)
    axes.set_title(
        title or "probable tokens; framed: the one that was drawn",
        loc="left",
        fontsize=11,
    )
    figure.colorbar(shown, ax=axes, label="probability", pad=0.01)
    return Picture(figure)


def _check(columns: list[Any]) -> None:
    best = max(entry.logprob for one in columns for entry in one.values())
    if best > 1e-3:  # above certainty, by more than rounding
        raise InvalidValueError(
            "a logprob of the output",
            best,
            "logarithms of probabilities",
            'With logprobs_mode="raw_logits" or "processed_logits" there are none.',
        )


def _shares(columns: list[Any], most: int) -> list[list[float]]:
    listed = [[math.exp(entry.logprob) for entry in one.values()] for one in columns]
    padded = [one + [0.0] * (most - len(one)) for one in listed]
    return [list(row) for row in zip(*padded, strict=True)]


def _ranks(columns: list[Any], most: int) -> list[str]:
    """Name the lines by rank, where that is the same in all columns."""
    listed = [[entry.rank for entry in one.values()] for one in columns]
    found = [{ranks[y] for ranks in listed if y < len(ranks)} for y in range(most)]
    return [str(y + 1) if ranks == {y + 1} else "" for y, ranks in enumerate(found)]


def _label(axes: Any, x: int, y: int, entry: Any, *, is_drawn: bool) -> None:
    from matplotlib.patches import Rectangle

    share = math.exp(entry.logprob)
    rank = f"\n#{entry.rank}" if entry.rank not in (None, y + 1) else ""
    text = repr(entry.decoded_token or "")[1:-1].replace(" ", "␣")
    label = f"{literal(_drawable(text)[:9])}\n{_short(share)}{rank}"
    colour = "white" if share > 0.55 else "black"
    axes.text(x, y, label, ha="center", va="center", fontsize=7, color=colour)
    if is_drawn:
        frame = {"fill": False, "edgecolor": "#D55E00", "linewidth": 2}
        axes.add_patch(Rectangle((x - 0.48, y - 0.48), 0.96, 0.96, **frame))


def _drawable(text: str) -> str:
    """Escape what matplotlib's own font has no letters for."""
    return "".join(
        one if ord(one) < 0x530 or one == "␣" else ascii(one)[1:-1] for one in text
    )


def _short(share: float) -> str:
    return f"{share:.2f}" if share >= 0.005 else "<.01"
