import enum
import math
import pathlib

import numpy as np
import pytest

from jengine import field_rules
from jengine.errors import ConfigError


class Colour(enum.Enum):
    RED = 1


ACCEPTED = [
    ("integer", field_rules.integer(1, 3), 3, 3),
    ("numpy integer", field_rules.integer(1, 3), np.int64(2), 2),
    ("number from int", field_rules.number(0, 1), 1, 1.0),
    ("number from numpy", field_rules.number(0, 1), np.float32(0.5), 0.5),
    ("bool", field_rules.boolean(), False, False),
    ("text", field_rules.text(), "a", "a"),
    ("path", field_rules.path(), pathlib.PurePosixPath("a/b"), "a/b"),
    ("one_of", field_rules.one_of("a", None), None, None),
    ("member", field_rules.member_of(Colour), Colour.RED, Colour.RED),
    ("optional", field_rules.optional(field_rules.integer()), None, None),
    ("many", field_rules.many(field_rules.integer()), range(2), (0, 1)),
    ("empty many", field_rules.many(field_rules.text()), [], ()),
]

REFUSED = [
    ("integer low", field_rules.integer(1), 0),
    ("integer high", field_rules.integer(1, 3), 4),
    ("integer bool", field_rules.integer(), True),
    ("integer float", field_rules.integer(), 1.0),
    ("integer text", field_rules.integer(), "1"),
    ("number nan", field_rules.number(-1, 1), math.nan),
    ("number inf", field_rules.number(0, None), math.inf),
    ("number bool", field_rules.number(0, 1), True),
    ("number text", field_rules.number(0, 1), "0.5"),
    ("number at open end", field_rules.number(0, 1, above_low=True), 0),
    ("number too large for a float", field_rules.number(0, None), 10**400),
    ("bool from int", field_rules.boolean(), 1),
    ("text empty", field_rules.text(), ""),
    ("text bytes", field_rules.text(), b"a"),
    ("path empty", field_rules.path(), ""),
    ("one_of other type", field_rules.one_of(1), 1.0),
    ("member by value", field_rules.member_of(Colour), 1),
    ("many from text", field_rules.many(field_rules.text()), "abc"),
    ("many from dict", field_rules.many(field_rules.text()), {"a": 1}),
    ("many from a number", field_rules.many(field_rules.integer()), 3),
    ("many of wrong items", field_rules.many(field_rules.text()), ["a", 1]),
    ("many too few", field_rules.many(field_rules.text(), least=1), []),
    ("many too many", field_rules.many(field_rules.integer(), most=1), [1, 2]),
]


@pytest.mark.parametrize(
    ("rule", "given", "kept"), [c[1:] for c in ACCEPTED], ids=[c[0] for c in ACCEPTED]
)
def test_accepted_value_is_converted(rule, given, kept):
    result = field_rules.apply_rules({"x": rule}, {"x": given}, ConfigError)["x"]
    assert result == kept
    assert type(result) is type(kept)


@pytest.mark.parametrize(
    ("rule", "given"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED]
)
def test_refused_value_is_named_with_what_is_allowed(rule, given):
    with pytest.raises(ConfigError) as caught:
        field_rules.apply_rules({"x": rule}, {"x": given}, ConfigError)
    assert caught.value.field == "x"
    assert caught.value.allowed == rule.allowed


def test_negative_zero_becomes_zero():
    rule = field_rules.number(0, 1)
    assert math.copysign(1, rule.convert(-0.0)) == 1.0


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (field_rules.integer(), "an integer"),
        (field_rules.integer(high=3), "an integer of at most 3"),
        (field_rules.number(0, None), "a number of at least 0"),
        (field_rules.optional(field_rules.text()), "None or a non-empty string"),
        (
            field_rules.many(field_rules.text(), least=1, most=3),
            "a non-empty list of at most 3, each item a non-empty string",
        ),
    ],
)
def test_words(rule, words):
    assert rule.allowed == words
