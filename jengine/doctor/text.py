"""A report for a terminal; without colours where it goes into a file or a pipe."""

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.text import Text

from jengine.doctor.report import Fact, Report

_INDENT = "  "


def print_report(report: Report, file: Any) -> None:
    """Write a report.

    Args:
      report: what was found.
      file: a text stream, such as stdout; colours if it is a terminal.
    """
    # Lines stay whole in files, so that they can be searched and pasted.
    console = Console(file=file, highlight=False, soft_wrap=True)
    for line in _lines(report):
        console.print(line, soft_wrap=True)


def _lines(report: Report) -> Iterator[Text]:
    width = max((len(f.name) for fs in report.sections.values() for f in fs), default=0)
    for title, facts in report.sections.items():
        if facts:
            yield Text(title, "bold")
            yield from (_line(fact, width) for fact in facts)
            yield Text("")
    yield from _problems(report)


def _line(fact: Fact, width: int) -> Text:
    value = " ".join(fact.value.split())
    line = Text(f"{_INDENT}{fact.name.ljust(width)}{_INDENT}{value}")
    if fact.why:
        line.append(f" ({fact.why})", "dim")
    return line


def _problems(report: Report) -> Iterator[Text]:
    if not report.problems:
        yield Text("no problem found", "bold green")
        return
    yield Text("problems", "bold red")
    for problem in report.problems:
        yield Text(f"{_INDENT}{' '.join(problem.what.split())}")
        yield Text(f"{_INDENT}-> ").append(problem.remedy, "bold")
    if not report.can_run:
        yield Text("\nno model can be run before this is mended", "bold red")
