"""A report for a terminal; without colours where it goes into a file or a pipe."""

from collections.abc import Iterator
from typing import Any

from jengine.doctor.report import Fact, Report

_INDENT = "  "
Line = tuple[tuple[str, str], ...]  # pieces of text, each with its style


def print_report(report: Report, file: Any) -> None:
    """Write a report.

    Args:
      report: what was found.
      file: a text stream, such as stdout; colours if it is a terminal and there is
        rich, whose absence may be what the report is about.
    """
    try:
        from rich.console import Console
        from rich.text import Text
    except ModuleNotFoundError:
        for line in _lines(report):
            file.write("".join(text for text, _ in line) + "\n")
        return
    # Lines stay whole in files, so that they can be searched and pasted.
    console = Console(file=file, highlight=False, soft_wrap=True)
    for line in _lines(report):
        console.print(Text.assemble(*line), soft_wrap=True)


def _lines(report: Report) -> Iterator[Line]:
    width = max((len(f.name) for fs in report.sections.values() for f in fs), default=0)
    for title, facts in report.sections.items():
        if facts:
            yield ((title, "bold"),)
            yield from (_line(fact, width) for fact in facts)
            yield ()
    yield from _problems(report)


def _line(fact: Fact, width: int) -> Line:
    value = " ".join(fact.value.split())
    line = (f"{_INDENT}{fact.name.ljust(width)}{_INDENT}{value}", "")
    return (line, (f" ({fact.why})", "dim")) if fact.why else (line,)


def _problems(report: Report) -> Iterator[Line]:
    if not report.problems:
        yield (("no problem found", "bold green"),)
        return
    yield (("problems", "bold red"),)
    for problem in report.problems:
        yield ((f"{_INDENT}{' '.join(problem.what.split())}", ""),)
        yield (f"{_INDENT}-> ", ""), (problem.remedy, "bold")
    if not report.can_run:
        yield (("\nno model can be run before this is mended", "bold red"),)
