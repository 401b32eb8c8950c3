"""Tables as plain text, for terminals and documents."""

from collections.abc import Sequence


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return lines of columns: the first one to the left, the others to the right.

    >>> print(format_table(["name", "n"], [["a", "10"], ["bcdef", "9"]]), end="")
    name    n
    -----  --
    a      10
    bcdef   9
    """
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [header, ["-" * width for width in widths], *rows]
    return "".join(_line(cells, widths) + "\n" for cells in lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first = cells[0].ljust(widths[0])
    rest = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)][1:]
    return "  ".join([first, *rest]).rstrip()
