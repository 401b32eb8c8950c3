"""Writes docs/options.md from the classes that define the options.

    python docs/write_options.py

Meanings are those of the docstrings, so that nothing is written twice. A test fails
while the file is behind the classes.
"""

import dataclasses
import inspect
import pathlib
import re
import types
import typing
from collections.abc import Iterator
from typing import Any

from jengine.config import EngineConfig
from jengine.config_rules import UNBUILT_OPTIONS
from jengine.repetition_detection import RepetitionDetectionParams
from jengine.sampling_params import SamplingParams
from jengine.structured_outputs import StructuredOutputsParams

FILE = pathlib.Path(__file__).with_name("options.md")
_ATTRIBUTE = re.compile(r"^ {2}(\w+): (.*(?:\n {4,}.*)*)", re.MULTILINE)

_BEGINNING = """\
# Options

Written by `python docs/write_options.py` from the classes themselves. Names and
defaults are vLLM's unless their meaning says otherwise; what differs from vLLM is in
[coming-from-vllm.md](coming-from-vllm.md). On the command line an option is a flag
with dashes (`--max-num-seqs 8`); `jengine generate --help` lists them.
"""
_ENGINE = """\
## The engine: `LLM(model, ...)`, `AsyncLLM(model, ...)`

Kept as an `EngineConfig`. On the command line `seed` and `stream_interval` are
`--engine-seed` and `--engine-stream-interval`, because requests have options of these
names.
"""
_SAMPLING = """\
## A request: `SamplingParams(...)`

Immutable; `dataclasses.replace` changes a copy.
"""
_STRUCTURED = """\
## Structured output: `StructuredOutputsParams(...)`

Exactly one of the first six.
"""
_REPETITION = """\
## Repetition: `RepetitionDetectionParams(...)`
"""
_UNBUILT = """\
## Options of vLLM that jengine has not built

`LLM(...)` takes them while they ask for nothing, and refuses any other value.
"""


def make_text() -> str:
    """Return the whole file."""
    parts = [
        _BEGINNING,
        _ENGINE,
        _table(EngineConfig),
        _SAMPLING,
        _table(SamplingParams),
        _STRUCTURED,
        _table(StructuredOutputsParams),
        _REPETITION,
        _table(RepetitionDetectionParams),
        _UNBUILT,
        _unbuilt(),
    ]
    return "\n".join(parts)


def _table(owner: Any) -> str:
    """Return the fields of a class as a table.

    Raises:
      KeyError: the docstring leaves out a field.
    """
    about = dict(_ATTRIBUTE.findall(inspect.cleandoc(owner.__doc__)))
    rows = [
        (
            f"`{field.name}`",
            f"`{_type_of(field.type)}`",
            _default_of(field),
            about[field.name],
        )
        for field in dataclasses.fields(owner)
    ]
    return _lines(("name", "type", "default", "meaning"), rows)


def _unbuilt() -> str:
    rows = [
        (f"`{name}`", ", ".join(f"`{value!r}`" for value in neutral))
        for name, neutral in sorted(UNBUILT_OPTIONS.items())
    ]
    return _lines(("name", "taken"), rows)


def _lines(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return "".join(_line(row) for row in _with_rule(header, rows))


def _with_rule(
    header: tuple[str, ...], rows: list[tuple[str, ...]]
) -> Iterator[tuple[str, ...]]:
    yield header
    yield tuple("---" for _ in header)
    yield from rows


def _line(cells: tuple[str, ...]) -> str:
    # A bar would end its cell, in code too.
    shown = (" ".join(cell.split()).replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(shown)} |\n"


def _type_of(hint: Any) -> str:
    """Return a type as it is written; Python's own spelling goes by its version."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(_type_of, arguments))
    if origin is typing.Literal:
        return " | ".join(map(repr, arguments))
    if hint is type(None):
        return "None"
    name = getattr(origin or hint, "__name__", str(hint))
    shown = ", ".join("..." if one is ... else _type_of(one) for one in arguments)
    return f"{name}[{shown}]" if arguments else name


def _default_of(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return f"`{field.default!r}`"
    if field.default_factory is not dataclasses.MISSING:
        return f"`{dict(field.default_factory())!r}`"
    return "needed"


if __name__ == "__main__":
    FILE.write_text(make_text(), "utf-8")
