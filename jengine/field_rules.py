"""Rules for the values of fields, written as data.

A `Rule` says in words what a field may hold and converts what was given into the form
that is kept; `apply_rules` runs a table of them. `SamplingParams` and `EngineConfig`
are checked this way, so that every refusal reads the same. Standard library only.
"""

import dataclasses
import enum
import math
import numbers
import os
from collections.abc import Callable, Iterable, Mapping
from typing import cast

from jengine.errors import InvalidValueError


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """What one field may hold.

    Attributes:
      allowed: the accepted values in words; it ends the sentence "allowed: ...".
      convert: returns the value as it is kept; raises ValueError, TypeError or
        OverflowError for a value that is not allowed.
    """

    allowed: str
    convert: Callable[[object], object]


def apply_rules(
    rules: Mapping[str, Rule],
    values: Mapping[str, object],
    error: type[InvalidValueError],
) -> dict[str, object]:
    """Convert `values` by the rules of the same names.

    Raises:
      InvalidValueError: as `error`, for the first value that its rule refuses.
    """
    kept: dict[str, object] = {}
    for field, rule in rules.items():
        found = values[field]
        try:
            kept[field] = rule.convert(found)
        except (ValueError, TypeError, OverflowError) as refusal:
            raise error(field, found, rule.allowed) from refusal
    return kept


def integer(low: int | None = None, high: int | None = None) -> Rule:
    """An integer from `low` to `high`; a bool is none, a numpy integer is one.

    >>> integer(1).allowed, integer(0, 9).allowed
    ('an integer of at least 1', 'an integer from 0 to 9')
    """

    def convert(value: object) -> int:
        kept = as_integer(value)
        _require(low is None or kept >= low)
        _require(high is None or kept <= high)
        return kept

    return Rule(_integer_words(low, high), convert)


def number(
    low: int | float, high: int | float | None, *, above_low: bool = False
) -> Rule:
    """A finite number from `low`, or above it, to `high`.

    >>> number(0, 1, above_low=True).allowed
    'a number above 0 and at most 1'
    """

    def convert(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise TypeError
        kept = float(value) + 0.0  # no -0.0
        _require(math.isfinite(kept))
        _require(kept > low if above_low else kept >= low)
        _require(high is None or kept <= high)
        return kept

    start = f"a number above {low}" if above_low else f"a number of at least {low}"
    return Rule(start if high is None else f"{start} and at most {high}", convert)


def boolean() -> Rule:
    """True or False; 0 and 1 are not taken for them."""
    return one_of(True, False)


def text() -> Rule:
    """A string of at least one character."""

    def convert(value: object) -> str:
        _require(isinstance(value, str) and value != "")
        return cast("str", value)

    return Rule("a non-empty string", convert)


def path() -> Rule:
    """A path, kept as a string; a hub name passes for one."""

    def convert(value: object) -> str:
        kept = os.fspath(value) if isinstance(value, os.PathLike) else value
        return cast("str", text().convert(kept))

    return Rule("a non-empty string or a path", convert)


def one_of(*choices: object) -> Rule:
    """One of a few values, of exactly their type: 1 does not stand for True."""

    def convert(value: object) -> object:
        _require(any(type(value) is type(c) and value == c for c in choices))
        return value

    return Rule(" or ".join(repr(choice) for choice in choices), convert)


def member_of(kind: type[enum.Enum]) -> Rule:
    """A member of an enum; neither its name nor its number stands for it."""

    def convert(value: object) -> object:
        if not isinstance(value, kind):
            raise TypeError
        return value

    return Rule(f"a member of {kind.__name__}", convert)


def instance_of(kind: type) -> Rule:
    """An object of this type, which has checked itself."""

    def convert(value: object) -> object:
        if not isinstance(value, kind):
            raise TypeError
        return value

    return Rule(f"a {kind.__name__}", convert)


def optional(rule: Rule) -> Rule:
    """What `rule` allows, or None."""

    def convert(value: object) -> object:
        return None if value is None else rule.convert(value)

    return Rule(f"None or {rule.allowed}", convert)


def many(item: Rule, *, least: int = 0, most: int | None = None) -> Rule:
    """A list, kept as a tuple, whose items all follow `item`."""

    def convert(value: object) -> tuple[object, ...]:
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise TypeError
        kept = tuple(map(item.convert, cast("Iterable[object]", value)))
        _require(len(kept) >= least)
        _require(most is None or len(kept) <= most)
        return kept

    limit = "" if most is None else f" of at most {most}"
    filled = "non-empty " if least else ""
    return Rule(f"a {filled}list{limit}, each item {item.allowed}", convert)


def as_integer(value: object) -> int:
    """Return an integer of any kind (numpy's too) as an int.

    Raises:
      TypeError: for everything else: a bool, a float, a string.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError
    return int(value)


def _integer_words(low: int | None, high: int | None) -> str:
    if low is not None and high is not None:
        return f"an integer from {low} to {high}"
    if low is not None:
        return f"an integer of at least {low}"
    return "an integer" if high is None else f"an integer of at most {high}"


def _require(condition: bool) -> None:
    if not condition:
        raise ValueError
