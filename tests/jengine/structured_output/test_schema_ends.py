"""References that lead back to themselves: which of them end, what others become."""

import copy

import pytest

from jengine.structured_output.constraint import GrammarError
from jengine.structured_output.schema_ends import without_endless

SELF = {"$ref": "#/$defs/n"}
LOOP = {"n": SELF}
CHAIN = {"type": "object", "properties": {"next": SELF}, "required": ["next"]}
ENDING = [
    {"$defs": {"n": {"const": 1}}, **SELF},
    {"$defs": {"n": CHAIN | {"required": []}}, **SELF},
    {"$defs": {"n": CHAIN | {"type": ["object", "null"]}}, **SELF},
    {"$defs": {"n": {"anyOf": [{"type": "null"}, CHAIN]}}, **SELF},
    {"$defs": {"n": {"type": "array", "items": SELF}}, **SELF},
    {"$defs": {"n": {"type": "array", "prefixItems": [SELF]}}, **SELF},
    {"properties": {"c": {"$ref": "#"}}, "required": ["c"]},  # text has no properties
    {"$defs": {"a/b c": {"const": 1}}, "$ref": "#/$defs/a~1b%20c"},
    {"anyOf": [{"const": 1}, {"$ref": "#/anyOf/0"}]},
    {"$defs": {"n": {"const": SELF}}, **SELF},
    {"$ref": "#/nowhere"},
    {"$ref": "http://example.com/#/x"},
    {"$ref": ["#"]},
    {"type": "object", "required": [3, ["a"]], "properties": {"b": {"$ref": "#"}}},
    True,
]
ENDLESS = [
    {"$ref": "#"},
    {"$defs": LOOP, **SELF},
    {"$defs": {"n": {"$ref": "#/$defs/m"}, "m": SELF}, **SELF},
    {"$defs": {"n": CHAIN}, **SELF},
    {"$defs": {"n": CHAIN}, "type": ["object"], "properties": {"a": SELF},
     "required": ["a"]},
    {"$defs": LOOP, "allOf": [True, SELF]},
    {"$defs": {"n": {"oneOf": [CHAIN, SELF]}}, **SELF},
    {"$defs": {"n": {"type": "array", "items": SELF, "minItems": 1}}, **SELF},
    {"$defs": {"n": {"type": "array", "items": SELF, "minItems": 1.0}}, **SELF},
    {"$defs": {"n": {"type": "array", "prefixItems": [SELF], "minItems": 1}}, **SELF},
]  # fmt: skip


@pytest.mark.parametrize("schema", ENDING, ids=str)
def test_what_ends_stays_as_it_is(schema):
    assert without_endless(schema) == schema


@pytest.mark.parametrize("schema", ENDLESS, ids=str)
def test_what_no_value_satisfies_is_refused(schema):
    with pytest.raises(GrammarError, match=r"no text follows \$ref '#"):
        without_endless(schema)


@pytest.mark.parametrize(
    "around",
    [
        lambda one: {"type": "object", "properties": {"a": one}},
        lambda one: {"type": "object", "additionalProperties": one},
        lambda one: {"type": "array", "items": one},
        lambda one: {"anyOf": [{"const": 1}, one]},
    ],
)
def test_what_can_be_left_out_becomes_false(around):
    schema = {"$defs": LOOP} | around(SELF | {"title": "t"})
    before = copy.deepcopy(schema)
    never = {"allOf": [False]}
    wanted = {"$defs": {"n": never}} | around({"title": "t"} | never)
    assert without_endless(schema) == wanted
    assert schema == before
