"""The flags of `jengine generate`, made from the fields that they set.

A new field of `EngineConfig` has its flag and its help at once; nothing is written
twice. Parsing knows no defaults: a flag that was not given leaves no trace, so that
the defaults stay in one place.
"""

import argparse
import dataclasses
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jengine.config import EngineConfig
from jengine.sampling_params import SamplingParams

DEFAULT_MAX_TOKENS = 128  # vLLM's 16 is too short to read
SAMPLING_FIELDS = (
    "max_tokens",
    "min_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "seed",
    "stop",
    "stop_token_ids",
    "ignore_eos",
    "logprobs",
    "skip_special_tokens",
    "include_stop_str_in_output",
)
ENGINE_FIELDS = tuple(
    field.name for field in dataclasses.fields(EngineConfig) if field.name != "model"
)

Owner = EngineConfig | SamplingParams

_ENGINE_FLAGS = {"seed": "--engine-seed"}  # --seed is the seed of the requests
_ATTRIBUTE = re.compile(r"^ {2}(\w+): (.*(?:\n {4,}.*)*)", re.MULTILINE)


def add_sampling_flags(parser: argparse.ArgumentParser) -> None:
    """Add a flag for each of `SAMPLING_FIELDS`."""
    group = parser.add_argument_group(
        "sampling",
        "What is not given is as the checkpoint proposes, or off;"
        f" --max-tokens is {DEFAULT_MAX_TOKENS}.",
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


def _parsing_of(name: str, hint: object) -> dict[str, Any]:
    special = _SPECIAL.get(name)
    if special is not None:
        return special
    kinds = set(typing.get_args(hint)) if isinstance(hint, types.UnionType) else {hint}
    (kind,) = kinds - {type(None)}
    if kind is bool:
        return {"action": argparse.BooleanOptionalAction}
    metavar = {int: "N", float: "X"}.get(typing.cast("type", kind), "TEXT")
    return {"type": kind, "metavar": metavar}


def _take(
    flags: argparse.Namespace, owner: type[Owner], names: Iterable[str]
) -> dict[str, Any]:
    given = vars(flags)
    found = {name: _dest(owner, name) for name in names}
    return {name: given[dest] for name, dest in found.items() if dest in given}


def _dest(owner: type[Owner], name: str) -> str:
    return f"{owner.__name__}.{name}"


def _length(text: str) -> int | str:
    return text if text == "auto" else int(text)


def _cache_dir(text: str) -> str | bool:
    return False if text == "off" else text


def _json_object(text: str) -> object:
    return json.loads(text)


def _special(parse: Callable[[str], object], metavar: str) -> dict[str, Any]:
    return {"type": parse, "metavar": metavar}


_SPECIAL: Mapping[str, dict[str, Any]] = {
    "stop": {"action": "append", "metavar": "TEXT"},
    "stop_token_ids": {"type": int, "nargs": "+", "metavar": "ID"},
    "max_model_len": _special(_length, "N|auto"),
    "compilation_cache_dir": _special(_cache_dir, "FOLDER|off"),
    "override_generation_config": _special(_json_object, "JSON"),
}
