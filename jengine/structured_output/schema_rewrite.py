"""JSON schemas in the form in which llguidance keeps to them.

Each rewriting leaves the meaning as it is, or narrows it where llguidance (1.9) would
widen it.
"""

import json
import math
import re
from collections.abc import Callable
from typing import Any

from jengine.structured_output.regex_rewrite import OWN_PARTS, narrowed_pattern
from jengine.structured_output.schema_spellings import spell_out

_NAMED = ("properties", "patternProperties", "$defs", "definitions")
_VALUES = ("const", "enum", "default", "examples")  # keywords without schemas
_DESCRIBED = ("properties", "patternProperties")

_PLAIN_ESCAPES: dict[str, object] = {"json_allowed_escapes": 'bfnrt"\\'}
_CONTROL = re.compile(r"\\u00|\x7f|\\\\[xucpPav0]|cntrl")  # in a schema's JSON text

_STEP = 1e-9  # beside an exclusive bound


def closed(schema: object) -> object:
    """Forbid properties that no schema names, where it does not say itself."""

    def close(one: dict[str, Any]) -> None:
        if isinstance(one.get("properties"), dict):
            one.setdefault("additionalProperties", False)

    return rewrite(schema, close)


def inside_bounds(schema: object) -> object:
    """Narrow bounds and patterns that llguidance would take for wider ones.

    It takes an exclusive bound for an inclusive one with a whole number where the other
    bound has the same whole part, such as 0 < x < 0.5. What lies within 1e-9 of the
    bound is given up. What it knows in other words only is put in those.

    Raises:
      GrammarError: a pattern ends in the middle of an escape.
    """

    def narrow(one: dict[str, Any]) -> None:
        spell_out(one)
        _move_bounds(one)
        _narrow_patterns(one)

    return rewrite(schema, narrow)


def escapes_for(schema: object) -> dict[str, object]:
    r"""Return the option that keeps names with an escape from being new names.

    Where `"a"` is described, `"\u0061"` passes for a property that is not. So escapes
    have one letter, unless the schema itself may need others for control characters.
    """
    text = json.dumps(schema, ensure_ascii=False)
    for own in OWN_PARTS:  # they exclude control characters, or hold many others
        text = text.replace(json.dumps(own)[1:-1], " ")
    speaks_of_control = _CONTROL.search(text)
    return {} if speaks_of_control or not _adds_names(schema) else _PLAIN_ESCAPES


def rewrite(schema: object, change: Callable[[dict[str, Any]], None]) -> object:
    """Copy a schema and change the copies of it and of all schemas inside.

    Args:
      schema: parsed JSON; it stays as it is.
      change: changes the copy of one schema, after those inside of it.
    """
    if isinstance(schema, list):
        return [rewrite(one, change) for one in schema]
    if not isinstance(schema, dict):
        return schema
    copy = dict(schema)
    for keyword, value in schema.items():
        if keyword in _NAMED and isinstance(value, dict):
            copy[keyword] = {n: rewrite(one, change) for n, one in value.items()}
        elif keyword not in _VALUES:
            copy[keyword] = rewrite(value, change)
    change(copy)
    return copy


def _narrow_patterns(schema: dict[str, Any]) -> None:
    pattern, named = schema.get("pattern"), schema.get("patternProperties")
    if isinstance(pattern, str):
        schema["pattern"] = narrowed_pattern(pattern)
    if not isinstance(named, dict):
        return
    narrow: dict[str, object] = {}
    for name, one in named.items():
        new = narrowed_pattern(name)
        narrow[new] = {"allOf": [narrow[new], one]} if new in narrow else one
    schema["patternProperties"] = narrow


def _move_bounds(schema: dict[str, Any]) -> None:
    lows = _numbers(schema, "minimum", "exclusiveMinimum")
    highs = _numbers(schema, "maximum", "exclusiveMaximum")
    if not lows or not highs:
        return
    low, high = max(lows.values()), min(highs.values())
    if lows.get("exclusiveMinimum") == low == math.floor(high) >= 0:
        del schema["exclusiveMinimum"]
        schema["minimum"] = max(low + _STEP, math.nextafter(low, math.inf))
    if highs.get("exclusiveMaximum") == high == math.ceil(low) <= 0:
        del schema["exclusiveMaximum"]
        schema["maximum"] = min(high - _STEP, math.nextafter(high, -math.inf))


def _numbers(schema: dict[str, Any], *keywords: str) -> dict[str, int | float]:
    found = {word: schema[word] for word in keywords if word in schema}
    return {
        word: value
        for word, value in found.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _adds_names(schema: object) -> bool:
    """Whether an object may have other properties than those that it describes."""
    if isinstance(schema, list):
        return any(_adds_names(one) for one in schema)
    if not isinstance(schema, dict):
        return False
    is_open = schema.get("additionalProperties") is not False
    describes = any(schema.get(keyword) for keyword in _DESCRIBED)
    return (is_open and describes) or any(_adds_names(one) for one in schema.values())
