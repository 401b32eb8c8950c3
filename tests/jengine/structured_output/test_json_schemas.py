"""Schemas as people write them, with texts inside and outside of what they describe.

Each text goes through the engine's own interface id by id; `jsonschema` confirms which
texts are valid.
"""

import json

import jsonschema
import numpy as np
import pytest

from jengine.structured_output.constraint import GrammarError
from jengine.structured_output.guidance import GuidanceGrammars
from jengine.structured_output.manager import Compiled, GrammarManager
from jengine.structured_outputs import StructuredOutputsParams
from jengine.testing import write_byte_tokenizer
from jengine.text.tokenizer import load_tokenizer

VOCAB = 320

FUNCTION_CALL = {
    "type": "object",
    "properties": {
        "name": {"const": "get_weather"},
        "arguments": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "minLength": 1},
                "unit": {"enum": ["°C", "°F"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 14},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    },
    "required": ["name", "arguments"],
    "additionalProperties": False,
}
TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "value": {"type": "number"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["value"],
        }
    },
    "$ref": "#/$defs/node",
}
LABELS = {
    "type": "object",
    "patternProperties": {"^x-[a-z]+$": {"type": "string"}},
    "additionalProperties": {"type": "integer"},
}
POINT = {
    "type": "array",
    "prefixItems": [{"type": "number", "exclusiveMinimum": 0}, {"type": ["null"]}],
    "items": False,
    "minItems": 1,
}
SHAPE = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}},
            "required": ["kind", "r"],
        },
        {
            "type": "object",
            "properties": {"kind": {"const": "dot"}},
            "required": ["kind"],
            "additionalProperties": False,
        },
    ]
}
TICKET = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": "^[A-Z]{2}-\\d{1,4}$"},
        "due": {"type": "string", "format": "date"},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
    },
    "required": ["id"],
}
EXCLUSIVE = {"oneOf": [{"type": "string", "maxLength": 2}, {"type": "integer"}]}
MERGED = {
    "allOf": [{"type": "integer", "minimum": 3}, {"maximum": 30}, {"multipleOf": 5}]
}

CASES = [
    (
        FUNCTION_CALL,
        [
            {"name": "get_weather", "arguments": {"city": "Zürich", "days": 14}},
            {"name": "get_weather", "arguments": {"city": "東京", "unit": "°C"}},
        ],
        [
            {"name": "get_weather", "arguments": {}},
            {"name": "get_weather", "arguments": {"city": ""}},
            {"name": "get_weather", "arguments": {"city": "a", "unit": "K"}},
            {"name": "get_weather", "arguments": {"city": "a", "days": 15}},
            {"name": "get_weather", "arguments": {"city": "a", "more": 1}},
            {"name": "other", "arguments": {"city": "a"}},
        ],
    ),
    (
        TREE,
        [{"value": 1}, {"value": 1, "children": [{"value": 2.5, "children": []}]}],
        [{}, {"value": 1, "children": [{"children": []}]}, {"value": "1"}],
    ),
    (LABELS, [{}, {"x-a": "b", "c": 1}], [{"x-a": 1}, {"c": "b"}, {"x-A": "b"}]),
    (POINT, [[0.5], [3, None]], [[], [0], [1, 2], [1, None, 3]]),
    (
        SHAPE,
        [{"kind": "circle", "r": -1e3}, {"kind": "dot"}],
        [{"kind": "circle"}, {"kind": "dot", "r": 1}, {"kind": "line"}],
    ),
    (
        TICKET,
        [{"id": "AB-12", "due": "2024-02-29", "tags": ["🐛", ""]}, {"id": "ZZ-0"}],
        [
            {"id": "AB-12345"},
            {"id": "AB-1", "due": "2023-02-30"},
            {"id": "AB-1", "tags": ["a", "b", "c"]},
            {"due": "2024-02-29"},
        ],
    ),
    (EXCLUSIVE, ["é", 12], ["abc", 1.5, None]),
    (MERGED, [5, 30], [0, 4, 35]),
]

REFUSED = [
    ({"type": "array", "uniqueItems": True}, "uniqueItems"),
    ({"properties": {"a": {"not": {"type": "string"}}}}, "not"),
    ({"if": {"type": "null"}, "then": {}, "else": {}}, "if"),
    ({"type": "string", "format": "credit-card"}, "credit-card"),
    ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, "oneOf"),
    ({"type": "object", "propertyNames": {"maxLength": 3}}, "propertyNames"),
    ({"type": "array", "contains": {"type": "null"}}, "contains"),
    ({"type": "string", "pattern": "(?=a)b"}, "look-around"),
    (
        {"$defs": {"x": {"$dynamicRef": "#y"}}, "items": {"$ref": "#/$defs/x"}},
        "$dynamicRef",
    ),
    (
        {
            "$defs": {"x": {"oneOf": [{"minimum": 1}, {"maximum": 2}]}},
            "items": {"$ref": "#/$defs/x"},
        },
        "(at #/$defs/x)",
    ),
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return load_tokenizer(write_byte_tokenizer(tmp_path_factory.mktemp("bytes")))


@pytest.fixture(scope="module")
def compile_schema(tokenizer):
    """Compiles as an engine does."""
    ends = [tokenizer.eos_token_id]
    manager = GrammarManager(
        lambda: GuidanceGrammars(tokenizer, vocab_size=VOCAB, eos_token_ids=ends)
    )

    def compile_schema(schema, **options):
        params = StructuredOutputsParams(json=schema, **options)
        return manager.submit(params).result()

    return compile_schema


def takes(compiled, tokenizer, text):
    """Whether each id may come next, and the end after the last."""
    constraint = compiled.constraint(())
    ids = tokenizer.encode(text, add_special_tokens=False)
    for index, token in enumerate(ids):
        if not may_come(constraint, token):
            return False
        if constraint.advance(token):  # nothing may follow
            return index == len(ids) - 1
    return may_come(constraint, tokenizer.eos_token_id)


def may_come(constraint, token):
    mask = np.full(VOCAB // 32, -1, np.int32)
    constraint.restrict(mask)
    return bool(mask[token // 32] >> token % 32 & 1)


@pytest.mark.parametrize("spacing", [None, 2])
@pytest.mark.parametrize(("schema", "good", "bad"), CASES)
def test_instances(compile_schema, tokenizer, schema, good, bad, spacing):
    compiled = compile_schema(schema)
    checks = jsonschema.Draft202012Validator.FORMAT_CHECKER
    validator = jsonschema.Draft202012Validator(schema, format_checker=checks)
    for instance in (*good, *bad):
        assert validator.is_valid(instance) == (instance in good)
        text = json.dumps(instance, ensure_ascii=False, indent=spacing)
        assert takes(compiled, tokenizer, text) == (instance in good), text


@pytest.mark.parametrize(("schema", "feature"), REFUSED, ids=str)
def test_what_is_not_supported_is_named(compile_schema, schema, feature):
    with pytest.raises(GrammarError) as error:
        compile_schema(schema)
    assert feature in str(error.value)


def test_no_spelling_of_a_name_escapes_its_schema(compile_schema, tokenizer):
    for schema in (
        {"type": "object", "properties": {"é": {"type": "null"}}},
        {"items": {"type": "object", "patternProperties": {"é": {"type": "null"}}}},
    ):
        compiled = compile_schema(schema)
        for name, is_free in (("é", False), ("\\u00e9", False), ("e", True)):
            text = f'{{"{name}": 1}}'
            text = f"[{text}]" if "items" in schema else text
            assert takes(compiled, tokenizer, text) is is_free, text
    free = compile_schema({"type": "object"})
    assert takes(free, tokenizer, '{"\\u001b": "\\u001b"}')


@pytest.mark.parametrize("low_word", ["minimum", "exclusiveMinimum"])
@pytest.mark.parametrize("high_word", ["maximum", "exclusiveMaximum"])
def test_numbers_keep_to_their_bounds(compile_schema, tokenizer, low_word, high_word):
    bounds = ((0, 0.5), (0, 1), (18, 18.25), (18, 20), (-0.5, 0), (-18.5, -18), (-1, 1))
    for low, high in bounds:
        schema = {"type": "number", low_word: low, high_word: high}
        compiled = compile_schema(schema)
        for number in sorted({low, high, *np.arange(-19, 21, 0.25).tolist()}):
            text = json.dumps(number)
            is_valid = jsonschema.Draft202012Validator(schema).is_valid(number)
            assert takes(compiled, tokenizer, text) == is_valid, (schema, text)


def test_schemas_inside_tags_are_kept_as_well(tokenizer):
    ends = [tokenizer.eos_token_id]
    grammars = GuidanceGrammars(tokenizer, vocab_size=VOCAB, eos_token_ids=ends)

    def tagged(schema, text, **options):
        structure = {"begin": "<f>", "schema": schema, "end": "</f>"}
        tag = {"structures": [structure], "triggers": ["<f>"]}
        params = StructuredOutputsParams(structural_tag=tag, **options)
        compiled = Compiled(grammars, grammars.compile(params))
        return takes(compiled, tokenizer, f"so <f>{text}</f>.")

    bounded = {"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}
    assert tagged(bounded, "0.5")
    assert not tagged(bounded, "0")
    items = {"type": "array", "items": {"properties": {"a": {}}}}
    assert tagged(items, "[ {}]")
    assert not tagged(items, "[  {}]")
    assert not tagged(items, "[ {}]", disable_any_whitespace=True)
    closed = {"disable_additional_properties": True}
    assert tagged(items, '[{"a": 1}]', **closed)
    assert not tagged(items, '[{"b": 1}]', **closed)
    with pytest.raises(GrammarError, match="uniqueItems"):
        tagged({"type": "array", "uniqueItems": True}, "[]")
