"""Recorded traces of real services: when requests came, and how long they were.

A CSV file with a header. Arrival times are seconds, or dates with a time; the columns
go by the names that public traces use, such as Azure's (Patel et al., Splitwise, ISCA
2024) and BurstGPT's.
"""

import csv
import dataclasses
import datetime
import math
import os
import re
from collections.abc import Iterable, Sequence

from jengine.errors import InvalidValueError

# Lower case, without spaces, dashes and underscores.
_COLUMNS = {
    "arrival_s": ("timestamp", "arrivaltime", "arrival", "arrivals", "time"),
    "prompt_tokens": (
        "contexttokens", "prompttokens", "numprompttokens", "requesttokens",
        "inputtokens", "inputlength",
    ),
    "output_tokens": (
        "generatedtokens", "outputtokens", "numgeneratedtokens", "responsetokens",
        "outputlength",
    ),
}  # fmt: skip

# Some traces have seven or nine digits of a second; Python knows microseconds.
_MORE_DIGITS = re.compile(r"(\.\d{6})\d+")


@dataclasses.dataclass(frozen=True, slots=True)
class TraceEntry:
    """One recorded request.

    Attributes:
      arrival_s: seconds after the first one.
      prompt_tokens: length of its prompt.
      output_tokens: tokens that were generated.
    """

    arrival_s: float
    prompt_tokens: int
    output_tokens: int


def read_trace(path: str | os.PathLike[str]) -> list[TraceEntry]:
    """Return the requests of a trace in the order of their arrival.

    Raises:
      InvalidValueError: a column is missing, or a line cannot be read.
    """
    # A file that is no text has a wrong header, like any other that is no trace.
    with open(path, newline="", encoding="utf-8-sig", errors="replace") as file:
        reader = csv.reader(file)
        header = next(reader, [])
        columns = [_find_column(name, header, path) for name in _COLUMNS]
        rows = [(number, row) for number, row in enumerate(reader, 2) if row]
    entries = [_parse(row, columns, f"{path}, line {number}") for number, row in rows]
    entries.sort(key=lambda one: one.arrival_s)
    return shifted(entries)


def shifted(entries: Sequence[TraceEntry]) -> list[TraceEntry]:
    """Return the entries with the first one at 0."""
    if not entries:
        return []
    start = entries[0].arrival_s
    return [dataclasses.replace(e, arrival_s=e.arrival_s - start) for e in entries]


def scaled(
    entries: Iterable[TraceEntry],
    *,
    speed: float = 1.0,
    max_prompt_tokens: int | None = None,
    max_output_tokens: int | None = None,
) -> list[TraceEntry]:
    """Return a trace that runs faster and whose lengths are cut.

    A trace of a large service on a small machine: time runs `speed` times as fast,
    and lengths above a limit become that limit. Lengths of 0 become 1.

    Args:
      entries: as recorded.
      speed: above 1 requests come faster than they did.
      max_prompt_tokens: longest prompt; None is no limit.
      max_output_tokens: longest output; None is no limit.

    Raises:
      InvalidValueError: a speed of 0 or below.
    """
    if not speed > 0:  # not a number is no speed
        raise InvalidValueError("speed", speed, "above 0")
    return [
        TraceEntry(
            one.arrival_s / speed,
            _cut(one.prompt_tokens, max_prompt_tokens),
            _cut(one.output_tokens, max_output_tokens),
        )
        for one in entries
    ]


def _cut(tokens: int, most: int | None) -> int:
    return max(1, tokens if most is None else min(tokens, most))


def _find_column(name: str, header: Sequence[str], path: object) -> int:
    plain = [_plain(one) for one in header]
    for known in _COLUMNS[name]:
        if known in plain:
            return plain.index(known)
    raise InvalidValueError(
        f"the header of {path}",
        ",".join(header),
        f"one with a column {_COLUMNS[name][0]}, or another name of that",
        "A trace is CSV with TIMESTAMP,ContextTokens,GeneratedTokens, for instance.",
    )


def _plain(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalnum())


def _parse(row: Sequence[str], columns: Sequence[int], where: str) -> TraceEntry:
    try:
        arrival, prompt, output = (row[column].strip() for column in columns)
        seconds, lengths = _seconds(arrival), (int(float(prompt)), int(float(output)))
        if not math.isfinite(seconds) or min(lengths) < 0:
            raise ValueError
        return TraceEntry(seconds, *lengths)
    except (ValueError, IndexError, OverflowError) as error:
        raise InvalidValueError(
            where, ",".join(row), "an arrival time and two numbers of tokens"
        ) from error


def _seconds(text: str) -> float:
    """Read seconds, or a date and time; without a zone it is UTC."""
    try:
        return float(text)
    except ValueError:
        digits = _MORE_DIGITS.sub(r"\1", text).replace("z", "Z")
        moment = datetime.datetime.fromisoformat(digits)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.UTC)
        return moment.timestamp()
