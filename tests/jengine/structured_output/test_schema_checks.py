import pytest

from jengine.structured_output.constraint import GrammarError
from jengine.structured_output.schema_checks import refuse_unkept

FREE = {"type": "object", "minProperties": 2}
KEPT = [
    {"type": "object", "minProperties": 1},
    {"minProperties": 2, "required": ["a"]},
    {"minProperties": 2, "additionalProperties": False, "properties": {"a": {}}},
    {"const": FREE},
    {"properties": {"minProperties": {"const": 2}}},
    True,
]


@pytest.mark.parametrize("schema", KEPT, ids=str)
def test_what_is_kept_is_taken(schema):
    refuse_unkept(schema)


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        (FREE, "#"),
        (FREE | {"minProperties": 2.0}, "#"),
        ({"properties": {"a": FREE}}, "#/properties/a"),
        ({"anyOf": [True, {"items": FREE}]}, "#/anyOf/1/items"),
        (
            FREE | {"additionalProperties": False, "patternProperties": {"^a": {}}},
            "#",
        ),
    ],
)
def test_the_keyword_and_its_place_are_named(schema, place):
    with pytest.raises(GrammarError, match=f"minProperties at {place} is"):
        refuse_unkept(schema)


NAMED = {"properties": {"score": {}, "é": {}}, "additionalProperties": False}


@pytest.mark.parametrize(
    "schema",
    [
        {"patternProperties": {"^score$": {}}},
        {"patternProperties": {"^score$": {}, "^é$": {}}},
        {"patternProperties": {"^(score|b)$": {}}, "required": ["b"]},
        {"patternProperties": {"^[[]$": {}}, "required": ["["], "properties": {}},
        {"patternProperties": {"^b$": {}}, "required": ["b"], "properties": {}},
    ],
    ids=str,
)
def test_patterns_without_names_of_their_own_are_refused(schema):
    with pytest.raises(GrammarError, match="patternProperties at #/items is"):
        refuse_unkept({"items": NAMED | schema})
    refuse_unkept(NAMED | schema | {"additionalProperties": {}})


@pytest.mark.parametrize("pattern", ["^score", "e", "^s", "^(?!a)", "["])
def test_patterns_with_other_names_are_left_to_the_compiler(pattern):
    refuse_unkept(NAMED | {"patternProperties": {pattern: {}}})


def test_numbers_are_looked_at_wherever_they_are():
    with pytest.raises(GrammarError, match="const at #/properties/a/items has"):
        refuse_unkept({"properties": {"a": {"items": {"const": 2**53 + 1}}}})
    refuse_unkept({"properties": {"const": {"default": 2**53 + 1}}})
