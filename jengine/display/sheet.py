"""A small table with a title, as text for a terminal and as HTML for a notebook. Pure.

Whatever a cell holds is shown as it is: no text of a model or of a user becomes markup.
"""

import dataclasses
import html
import itertools
from collections.abc import Iterable, Sequence

# Classes by which notebooks know where not to look for formulas: stories cost $5.
_NO_FORMULAS = "tex2jax_ignore mathjax_ignore"
_CELL = "text-align:left;vertical-align:top;white-space:pre-wrap"
_PLAIN = "font-family:monospace;white-space:pre-wrap"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """What is shown of a value.

    Attributes:
      title: one line.
      header: names of the columns; empty for none.
      rows: cells as text, as many in each row as there are columns.
      notes: lines below the table, spaces kept.
    """

    title: str
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()

    def to_text(self) -> str:
        """Return the sheet as lines, columns aligned."""
        lines = [self.title, *_aligned(self.header, self.rows), *self.notes]
        return "\n".join(line.rstrip() for line in lines)

    def to_html(self) -> str:
        """Return the sheet as one HTML element, everything in it escaped."""
        parts = [f"<b>{html.escape(self.title)}</b>"]
        if self.rows:
            head = f"<thead>{_html_row('th', self.header)}</thead>"
            body = "".join(_html_row("td", row) for row in self.rows)
            parts.append(
                f"<table>{head if self.header else ''}<tbody>{body}</tbody></table>"
            )
        if self.notes:
            text = html.escape("\n".join(self.notes))
            parts.append(f'<pre style="{_PLAIN}">{text}</pre>')
        return f'<div class="{_NO_FORMULAS}">{"".join(parts)}</div>'


def sheet(
    title: str,
    header: Iterable[str] = (),
    rows: Iterable[Sequence[object]] = (),
    notes: Iterable[str] = (),
) -> Sheet:
    """Make a sheet of cells of any kind; None is shown as a dash."""
    return Sheet(
        title=title,
        header=tuple(header),
        rows=tuple(tuple(map(_cell, row)) for row in rows),
        notes=tuple(notes),
    )


def _cell(value: object) -> str:
    return "-" if value is None or value == "" else str(value)


def _aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterable[str]:
    listed = [header, *rows] if header else list(rows)
    # A column is as wide as its longest line; texts of several lines come last.
    widths = [
        max(len(line) for cell in column for line in cell.split("\n"))
        for column in zip(*listed, strict=True)
    ]
    for row in listed:
        for cells in itertools.zip_longest(
            *(cell.split("\n") for cell in row), fillvalue=""
        ):
            padded = map(str.ljust, cells[:-1], widths)
            yield "  ".join(["", *padded, cells[-1]])


def _html_row(tag: str, cells: Sequence[str]) -> str:
    made = "".join(
        f'<{tag} style="{_CELL}">{html.escape(cell)}</{tag}>' for cell in cells
    )
    return f"<tr>{made}</tr>"
