import llguidance
import pytest

from jengine.structured_output.schema_spellings import spell_out

TOKENIZER = llguidance.LLTokenizer("byte")
DRAFT = "http://json-schema.org/draft-07/schema#"
NEW = "https://json-schema.org/draft/2020-12/schema"


def refusal(schema):
    grammar = llguidance.LLMatcher.grammar_from_json_schema(schema)
    return llguidance.LLMatcher(TOKENIZER, grammar, log_level=0).get_error()


@pytest.mark.parametrize(
    ("schema", "spelled"),
    [
        ({"$schema": "https://json-schema.org/draft-07/schema#"}, {"$schema": DRAFT}),
        ({"$schema": "https://json-schema.org/draft-07/schema"}, {"$schema": DRAFT}),
        ({"$schema": NEW.replace("https", "http") + "#"}, {"$schema": NEW}),
        ({"$schema": "http://json-schema.org/schema#"}, {}),
        ({"$schema": "mine"}, {}),
        ({"uniqueItems": False}, {}),
        ({"minLength": 1.0, "maxItems": 2.0}, {"minLength": 1, "maxItems": 2}),
        ({"type": "string", "format": "binary"}, {"type": "string"}),
        ({"type": "string", "format": "password"}, {"type": "string"}),
        (
            {"$ref": "#/$defs/Model[int]", "$defs": {"Model[int]": {}}},
            {"$ref": "#/$defs/Model%5Bint%5D", "$defs": {"Model[int]": {}}},
        ),
        (
            {"$ref": "#/$defs/a b|é", "$defs": {"a b|é": {}}},
            {"$ref": "#/$defs/a%20b%7C%C3%A9", "$defs": {"a b|é": {}}},
        ),
    ],
)
def test_words_that_are_not_known(schema, spelled):
    changed = dict(schema)
    spell_out(changed)
    assert changed == spelled
    assert [type(one) for one in changed.values()] == [
        type(one) for one in spelled.values()
    ]
    assert refusal(changed) == ""


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": DRAFT, "$ref": "#/$defs/a%20b/~1"},
        {"$schema": 3, "$ref": ["#/ "]},
        {"$ref": "other.json#/[a]"},
        {"uniqueItems": True, "format": "email", "minLength": 1.5},
        {"minLength": "1.0", "minimum": 1.0, "format": ["binary"]},
    ],
    ids=str,
)
def test_all_else_stays(schema):
    changed = dict(schema)
    spell_out(changed)
    assert changed == schema
