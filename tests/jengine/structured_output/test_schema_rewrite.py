"""What is changed in a schema, and what must not be."""

import copy

import pytest

from jengine.structured_output.schema_rewrite import (
    closed,
    escapes_for,
    inside_bounds,
)

VALUE = {"properties": {"a": 1}, "exclusiveMinimum": 0, "maximum": 0.5}
PLACES = [
    {"items": VALUE},
    {"properties": {"properties": VALUE}},
    {"$defs": {"properties": VALUE}},
    {"patternProperties": {"const": VALUE}},
    {"anyOf": [{"type": "null"}, VALUE]},
]


def find(changed):
    """The copy of VALUE, wherever it is."""
    if isinstance(changed, list):
        return next(filter(None, map(find, changed)), None)
    if not isinstance(changed, dict):
        return None
    if changed.get("maximum") == 0.5:
        return changed
    return find(list(changed.values()))


@pytest.mark.parametrize("schema", PLACES, ids=str)
def test_schemas_are_found_wherever_they_are(schema):
    before = copy.deepcopy(schema)
    assert find(closed(schema)) == VALUE | {"additionalProperties": False}
    assert find(inside_bounds(schema)) == {
        "properties": {"a": 1},
        "minimum": pytest.approx(0, abs=1e-8),
        "maximum": 0.5,
    }
    assert schema == before


@pytest.mark.parametrize("keyword", ["const", "enum", "default", "examples"])
def test_values_are_not_schemas(keyword):
    schema = {keyword: [VALUE]}
    assert inside_bounds(closed(schema)) == schema


def test_only_objects_with_properties_are_closed():
    for schema in ({"type": "object"}, {"properties": 3}, {"additionalProperties": {}}):
        assert closed(schema) == schema
    assert closed({"properties": {}}) == {"properties": {}} | {
        "additionalProperties": False
    }
    said = {"properties": {}, "additionalProperties": True}
    assert closed(said) == said


@pytest.mark.parametrize(
    "schema",
    [
        {"exclusiveMinimum": 0, "maximum": 1},
        {"exclusiveMinimum": 0.25, "maximum": 0.5},
        {"exclusiveMinimum": 0},
        {"minimum": 0, "maximum": 0.5},
        {"exclusiveMinimum": 0, "minimum": 0.25, "maximum": 0.5},
        {"exclusiveMinimum": True, "minimum": 0, "maximum": 0.5},
        {"exclusiveMinimum": "0", "maximum": 0.5},
    ],
    ids=str,
)
def test_other_bounds_stay(schema):
    assert inside_bounds(schema) == schema


@pytest.mark.parametrize("whole", [0, 18, 10**12, -3])
def test_a_moved_bound_lies_inside(whole):
    schema = {"exclusiveMinimum": whole, "exclusiveMaximum": whole + 0.5}
    if whole < 0:
        schema = {"exclusiveMinimum": whole - 0.5, "exclusiveMaximum": whole}
        assert whole - 0.5 < inside_bounds(schema)["maximum"] < whole
    else:
        assert whole < inside_bounds(schema)["minimum"] < whole + 0.5


def test_escapes_stay_where_they_may_be_needed():
    names = {"properties": {"a": {}}}
    assert escapes_for(names)
    assert escapes_for({"items": {"patternProperties": {"a": {}}}})
    assert not escapes_for({"type": "object"})
    assert not escapes_for(names | {"additionalProperties": False})
    for text in ("\x01", "\x7f"):
        assert not escapes_for(names | {"const": text})
        assert not escapes_for({"properties": {text: {}}})
    for pattern in ("\\x01", "\\u001b", "[[:cntrl:]]", "\\p{Cc}"):
        assert not escapes_for(names | {"pattern": pattern})
    assert escapes_for(names | {"pattern": "\\d+\\.\n"})
    for pattern in (r"^\W\S\D$", '^[^"]$'):  # what they become speaks of control
        assert escapes_for(inside_bounds(names | {"pattern": pattern}))


def test_patterns_are_narrowed():
    assert inside_bounds({"items": {"pattern": '[^"]'}}) == {
        "items": {"pattern": r'[^"\x{0}]'}
    }
    assert inside_bounds({"pattern": 3, "patternProperties": [1]}) == {
        "pattern": 3,
        "patternProperties": [1],
    }


def test_patterns_that_become_equal_hold_together():
    schema = {"patternProperties": {r"^\<": {"type": "null"}, "^<": {}, "[a]": {}}}
    assert inside_bounds(schema) == {
        "patternProperties": {"^<": {"allOf": [{"type": "null"}, {}]}, "[a]": {}}
    }


def test_words_are_spelled_as_they_are_known():
    assert inside_bounds({"items": {"uniqueItems": False}}) == {"items": {}}
