"""The flags of the commands, made from the fields that they set.

A new field of `EngineConfig` or `SamplingParams` has its flag and its help at once;
nothing is written twice. Parsing knows no defaults: a flag that was not given leaves no
trace, so that the defaults stay in one place.
"""

import argparse
import dataclasses
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jengine.config import EngineConfig
from jengine.sampling_params import SamplingParams
from jengine.structured_outputs import StructuredOutputsParams

_NO_FLAG = frozenset(
    {
        "model",  # has a flag of its own
        "output_kind",  # the commands print what is new, and nothing twice
        "flat_logprobs",  # a form for programs
        "guided_decoding",  # an older name
    }
)
SAMPLING_FIELDS = tuple(
    field.name
    for field in dataclasses.fields(SamplingParams)
    if field.name not in _NO_FLAG
)
ENGINE_FIELDS = tuple(
    field.name
    for field in dataclasses.fields(EngineConfig)
    if field.name not in _NO_FLAG
)

Owner = EngineConfig | SamplingParams

# Without the prefix they are options of the requests.
_ENGINE_FLAGS = {
    "seed": "--engine-seed",
    "stream_interval": "--engine-stream-interval",
}
_ATTRIBUTE = re.compile(r"^ {2}(\w+): (.*(?:\n {4,}.*)*)", re.MULTILINE)


def add_sampling_flags(parser: argparse.ArgumentParser, *, max_tokens: str) -> None:
    """Add a flag for each of `SAMPLING_FIELDS`.

    Args:
      parser: gets the flags.
      max_tokens: in words, what it is if it is not given.
    """
    group = parser.add_argument_group(
        "sampling",
        "What is not given is as the checkpoint proposes, or off;"
        f" --max-tokens is {max_tokens}.",
    )
    _add_flags(group, SamplingParams, SAMPLING_FIELDS, {})


def add_engine_flags(parser: argparse.ArgumentParser) -> None:
    """Add a flag for each field of `EngineConfig` but the model."""
    group = parser.add_argument_group("engine")
    _add_flags(group, EngineConfig, ENGINE_FIELDS, _ENGINE_FLAGS)


def take_sampling(flags: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of `SamplingParams` that were given."""
    return _take(flags, SamplingParams, SAMPLING_FIELDS)


def take_engine(flags: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of `EngineConfig` that were given."""
    return _take(flags, EngineConfig, ENGINE_FIELDS)


def _add_flags(
    group: Any, owner: type[Owner], names: Iterable[str], flags: Mapping[str, str]
) -> None:
    hints = {field.name: field.type for field in dataclasses.fields(owner)}
    about = dict(_ATTRIBUTE.findall(inspect.cleandoc(owner.__doc__ or "")))
    for name in names:
        words = " ".join(about.get(name, "").split()).replace("%", "%%")
        group.add_argument(
            flags.get(name, "--" + name.replace("_", "-")),
            dest=_dest(owner, name),
            default=argparse.SUPPRESS,
            help=words or None,
            **_parsing_of(name, hints[name]),
        )


def _parsing_of(  # noqa: PLR0911 - one return for each kind of field
    name: str, hint: object
) -> dict[str, Any]:
    special = _SPECIAL.get(name)
    if special is not None:
        return special
    kinds = set(typing.get_args(hint)) if isinstance(hint, types.UnionType) else {hint}
    (kind,) = kinds - {type(None)}
    if kind is bool:
        return {"action": argparse.BooleanOptionalAction}
    if typing.get_origin(kind) is typing.Literal:
        return {"choices": typing.get_args(kind)}
    if typing.get_origin(kind) is Sequence:
        (item,) = typing.get_args(kind)
        if item is str:
            return _special(str, "TEXT") | {"action": "append"}
        return _special(item, "ID") | {"nargs": "+"}
    if kind in _METAVARS:
        return _special(typing.cast("type", kind), _METAVARS[kind])
    return _special(_json, "JSON")


def _take(
    flags: argparse.Namespace, owner: type[Owner], names: Iterable[str]
) -> dict[str, Any]:
    given = vars(flags)
    found = {name: _dest(owner, name) for name in names}
    return {name: given[dest] for name, dest in found.items() if dest in given}


def _dest(owner: type[Owner], name: str) -> str:
    return f"{owner.__name__}.{name}"


def _limit(text: str) -> int | None:
    return None if text == "none" else _integer(text, "none")


def _length(text: str) -> int | str:
    return text if text == "auto" else _integer(text, "auto")


def _integer(text: str, word: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        message = f"{text!r} is no whole number, nor {word!r}"
        raise argparse.ArgumentTypeError(message) from error


def _cache_dir(text: str) -> str | bool:
    return False if text == "off" else text


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON: {error}") from error


def _logit_bias(text: str) -> object:
    """Read a JSON object; its keys are strings, where ids are meant."""
    given = _json(text)
    if not isinstance(given, dict) or not all(key.isdecimal() for key in given):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no JSON object from token ids to numbers"
        )
    return {int(key): value for key, value in given.items()}


def _structured_outputs(text: str) -> StructuredOutputsParams:
    given = _json(text)
    if not isinstance(given, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON object")
    try:
        return StructuredOutputsParams(**given)
    except (ValueError, TypeError) as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _special(parse: Callable[[str], object], metavar: str) -> dict[str, Any]:
    return {"type": parse, "metavar": metavar}


_METAVARS: Mapping[object, str] = {int: "N", float: "X", str: "TEXT"}

_SPECIAL: Mapping[str, dict[str, Any]] = {
    "logit_bias": _special(_logit_bias, "JSON"),
    "structured_outputs": _special(_structured_outputs, "JSON"),
    "max_tokens": _special(_limit, "N|none"),
    "max_model_len": _special(_length, "N|auto"),
    "compilation_cache_dir": _special(_cache_dir, "FOLDER|off"),
}
