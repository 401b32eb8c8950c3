"""Schemas and grammars: kept to the letter, or refused by name; never half obeyed."""

import json
import re

import jsonschema
import numpy as np
import pytest

from jengine import SamplingParams, StructuredOutputsParams
from jengine.errors import SamplingParamsError
from jengine.testing import write_byte_tokenizer, write_markov_checkpoint

VOCAB = 320
SHORT = b'"}]'  # what ends strings, objects and arrays
INTEGER = {"type": "integer"}

# (name of the keyword, schema); each compiles, and all that comes out is valid.
KEPT = [
    ("pattern, maxLength", {"pattern": "^[a-z]+$", "maxLength": 3}),
    ("pattern, not anchored", {"type": "string", "pattern": "b"}),
    ("minLength", {"type": "string", "minLength": 3, "maxLength": 5}),
    ("minLength, no type", {"minLength": 2}),
    ("date", {"type": "string", "format": "date"}),
    ("uuid", {"type": "string", "format": "uuid"}),
    ("ipv4", {"type": "string", "format": "ipv4"}),
    ("items", {"type": "array", "items": INTEGER, "minItems": 2, "maxItems": 3}),
    ("maxItems 0", {"type": "array", "maxItems": 0}),
    ("minimum", {"type": "integer", "minimum": 3, "maximum": 12}),
    ("exclusive", {"type": "integer", "exclusiveMinimum": -2, "exclusiveMaximum": 1}),
    ("multipleOf", {"type": "integer", "multipleOf": 7, "minimum": 10, "maximum": 50}),
    ("enum", {"enum": [1, "a", None, True, [1, 2], {"k": 1.5}, "ü", 1e2]}),
    ("enum, type", {"type": "string", "enum": ["a", 1, "bc"]}),
    ("enum, maxLength", {"enum": ["abc", "abcdef"], "maxLength": 3}),
    ("const", {"const": {"a": [1, "é"], "b": None}}),
    ("oneOf", {"oneOf": [INTEGER, {"type": "string", "maxLength": 3}]}),
    ("anyOf", {"anyOf": [{"type": "boolean"}, {"const": "x"}]}),
    ("anyOf beside", {"type": "integer", "anyOf": [{"maximum": 3}, {"const": 9}]}),
    ("allOf", {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 5}]}),
    ("properties", {"type": "object", "properties": {"a": INTEGER}, "required": ["a"]}),
    (
        "additionalProperties false",
        {"properties": {"a": INTEGER}, "additionalProperties": False},
    ),
    (
        "additionalProperties",
        {
            "type": "object",
            "properties": {"a": {"const": 1}},
            "additionalProperties": {"type": "boolean"},
        },
    ),
    (
        "patternProperties",
        {"type": "object", "patternProperties": {"^x": {"const": 1}}},
    ),
    ("required alone", {"type": "object", "required": ["a", "b"]}),
    ("minProperties 1", {"type": "object", "minProperties": 1, "maxProperties": 1}),
    (
        "prefixItems",
        {"type": "array", "prefixItems": [INTEGER, {"const": "x"}], "items": False},
    ),
    ("type list", {"type": ["integer", "null", "string"], "maxLength": 2}),
    ("$ref", {"$defs": {"n": {"enum": [1, 2]}}, "$ref": "#/$defs/n"}),
    ("$ref beside", {"$defs": {"n": INTEGER}, "$ref": "#/$defs/n", "minimum": 5}),
    (
        "$ref to itself",
        {"properties": {"c": {"$ref": "#"}}, "additionalProperties": False},
    ),
    ("empty", {}),
    ("true", True),
    ("annotations", {"title": "t", "default": 3, "x-unknown": 1, "type": "boolean"}),
]
# Refused, and the error names it, unless what comes out is valid.
DOUBTFUL = [
    ("uniqueItems", {"type": "array", "items": {"enum": [1]}, "uniqueItems": True}),
    ("contains", {"type": "array", "contains": {"const": 1}}),
    ("minContains", {"type": "array", "contains": {"const": 1}, "minContains": 2}),
    ("not", {"not": {"type": "string"}}),
    ("not", {"properties": {"a": {"not": {"type": "string"}}}, "required": ["a"]}),
    ("propertyNames", {"type": "object", "propertyNames": {"maxLength": 2}}),
    ("minProperties", {"type": "object", "minProperties": 2}),
    (
        "minProperties",
        {"type": "array", "items": {"type": "object", "minProperties": 3}},
    ),
    ("dependentRequired", {"type": "object", "dependentRequired": {"a": ["b"]}}),
    (
        "dependentSchemas",
        {"type": "object", "dependentSchemas": {"a": {"required": ["b"]}}},
    ),
    (
        "unevaluatedProperties",
        {"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False},
    ),
    ("unevaluatedItems", {"prefixItems": [{}], "unevaluatedItems": False}),
    ("oneOf", {"oneOf": [INTEGER, {"type": "number", "minimum": 5}]}),
    (
        "if",
        {"type": "object", "if": {"required": ["a"]}, "then": {"required": ["b"]}},
    ),
    ("klingon", {"type": "string", "format": "klingon"}),
    ("look-around", {"type": "string", "pattern": "^(?!a)b"}),
    ("backreferences", {"type": "string", "pattern": r"^(a)\1$"}),
    ("minLength", {"type": "string", "minLength": 5, "maxLength": 3}),
    ("minimum", {"type": "integer", "minimum": 5, "maximum": 3}),
    ("1.2", {"type": "integer", "minimum": 1.2, "maximum": 1.8}),
    ("minLength", {"type": "string", "minLength": "3"}),
    ("additionalProperties|schema", {"type": "object", "additionalProperties": "no"}),
    ("foo", {"type": "foo"}),
    ("#/nope|nope", {"$ref": "#/nope"}),
    ("example.com", {"$ref": "http://example.com/x.json"}),
    ("false", False),
    ("no text", {"$ref": "#"}),
    ("no text", {"$defs": {"n": {"$ref": "#/$defs/n"}}, "$ref": "#/$defs/n"}),
    (
        "no text",
        {"type": "object", "properties": {"c": {"$ref": "#"}}, "required": ["c"]},
    ),
    (
        "patternProperties",
        {"type": "object", "properties": {"a": INTEGER}, "required": ["a"],
         "patternProperties": {"^a$": INTEGER}, "additionalProperties": False},
    ),
    ("unsatisfiable|Unsatisfiable", {"type": "object", "required": ["a"],
                                    "additionalProperties": False}),
]  # fmt: skip


@pytest.fixture(scope="module")
def make_lover(tmp_path_factory, make_llm):
    """Makes an engine that likes some characters, the first ones best."""

    def make(loved, strength=40.0, **options):
        folder = tmp_path_factory.mktemp("lover")
        write_byte_tokenizer(folder)
        row = np.random.default_rng(0).uniform(0, 1, VOCAB).astype(np.float32)
        for rank, token in enumerate(dict.fromkeys(loved)):
            row[token] = strength - rank * min(1, strength / 50)
        table = dict.fromkeys(range(VOCAB), row)
        write_markov_checkpoint(
            folder, table, eos_token_id=257, max_position_embeddings=4096
        )
        return make_llm(folder, skip_tokenizer_init=False, **options)

    return make


@pytest.fixture(scope="module")
def brief(make_lover):
    """Says anything, but ends what it has begun."""
    return make_lover([*SHORT, 257, *b"abx1025-"], strength=5.0)


def _params(kind, value, **options):
    asked = StructuredOutputsParams(**{kind: value})
    options = {"temperature": 1.5, "max_tokens": 120} | options
    return SamplingParams(structured_outputs=asked, **options)


def _valid(text, schema):
    check = jsonschema.Draft202012Validator.FORMAT_CHECKER
    validator = jsonschema.Draft202012Validator(schema, format_checker=check)
    return validator.is_valid(json.loads(text))


def test_str_02_what_compiles_is_kept(brief, check_idle):
    asked = [schema for _, schema in KEPT for _ in range(6)]
    params = [_params("json", schema, seed=i) for i, schema in enumerate(asked)]
    outputs = brief.generate(["^"] * len(asked), params, use_tqdm=False)
    finished = dict.fromkeys((name for name, _ in KEPT), 0)
    for i, (schema, output) in enumerate(zip(asked, outputs, strict=True)):
        done = output.outputs[0]
        assert done.finish_reason in ("stop", "length")
        if done.finish_reason == "stop":
            assert _valid(done.text, schema), (schema, done.text)
            finished[KEPT[i // 6][0]] += 1
    assert all(count >= 3 for count in finished.values()), finished
    check_idle(brief)


@pytest.mark.parametrize(("keyword", "schema"), DOUBTFUL, ids=str)
def test_str_02_what_is_not_kept_is_named(brief, check_idle, keyword, schema):
    params = [_params("json", schema, seed=seed) for seed in range(8)]
    try:
        outputs = brief.generate(["^"] * 8, params, use_tqdm=False)
    except ValueError as error:
        text = str(error)
        assert re.search(keyword, text.partition("llguidance can compile")[2]), text
    else:
        texts = [o.outputs[0].text for o in outputs]
        ends = [o.outputs[0].finish_reason for o in outputs]
        done = [t for t, end in zip(texts, ends, strict=True) if end == "stop"]
        assert done
        assert all(_valid(text, schema) for text in done)
    check_idle(brief)


def test_str_02_properties_named_like_keywords_are_properties(brief):
    names = ["not", "minProperties", "uniqueItems", "if"]
    schema = {
        "type": "object",
        "properties": {name: {"const": 2} for name in names},
        "required": names,
        "additionalProperties": False,
    }
    (output,) = brief.generate("^", _params("json", schema), use_tqdm=False)
    assert json.loads(output.outputs[0].text) == dict.fromkeys(names, 2)


UNICODE = {
    "type": "object",
    "properties": {"größe": {"enum": ["北京", "São Paulo", "👍🏽"]}},
    "required": ["größe"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("member", ["北京", "São Paulo", "👍🏽"])
def test_str_03_every_member_can_be_said(make_lover, member):
    start = member.encode()[0]
    llm = make_lover([start, *SHORT])
    params = _params("json", UNICODE, temperature=0)
    (output,) = llm.generate("^", params, use_tqdm=False)
    done = output.outputs[0]
    assert json.loads(done.text) == {"größe": member}
    assert done.finish_reason == "stop"


def test_str_03_characters_are_counted_not_bytes(make_lover):
    llm = make_lover([*"👍".encode(), *"é".encode(), *SHORT, ord("\\"), ord("u")])
    two = {"type": "string", "minLength": 2, "maxLength": 2}
    pairs = [
        ("json", two, lambda text: len(json.loads(text)) == 2),
        (
            "json",
            two | {"pattern": "^[à-ü]+$"},
            lambda t: re.fullmatch('"[à-ü]{2}"', t),
        ),
        ("regex", "[à-ü]{3}", lambda text: re.fullmatch("[à-ü]{3}", text)),
        ("regex", ".{2}猫", lambda text: re.fullmatch(".{2}猫", text)),
        ("grammar", 'start: "日" ("本" | "👍")', lambda text: text in ("日本", "日👍")),
        ("grammar", 'root ::= "é" [ж-я] "👍"', lambda t: re.fullmatch("é[ж-я]👍", t)),
        ("choice", ["👍", "👍🏽", "👎"], lambda text: text in ("👍", "👍🏽")),
    ]
    for temperature in (0, 1):
        params = [_params(k, v, temperature=temperature, seed=1) for k, v, _ in pairs]
        outputs = llm.generate(["^"] * len(pairs), params, use_tqdm=False)
        for output, (_, value, is_right) in zip(outputs, pairs, strict=True):
            done = output.outputs[0]
            assert done.finish_reason == "stop", value
            assert is_right(done.text), (value, done.text)


def test_str_03_names_and_members_that_need_escapes(brief):
    odd = ['a"b', "back\\slash", "line\nbreak", "\t", "/", "\u2028", "\x01", "", " "]
    params = [
        _params("json", {"const": {one: [one]}}, seed=i) for i, one in enumerate(odd)
    ]
    outputs = brief.generate(["^"] * len(odd), params, use_tqdm=False)
    assert [json.loads(o.outputs[0].text) for o in outputs] == [
        {one: [one]} for one in odd
    ]


def test_str_03_choices_that_look_like_grammar(brief):
    odd = [
        "a|b",
        '"',
        "\\",
        "a\nb",
        "/x/",
        "%",
        "<tag>",
        " ",
        "a{2}",
        "start",
        "\\u0041",
    ]
    params = [_params("choice", [one], seed=i) for i, one in enumerate(odd)]
    outputs = brief.generate(["^"] * len(odd), params, use_tqdm=False)
    assert [output.outputs[0].text for output in outputs] == odd
    (output,) = brief.generate("^", _params("choice", odd, seed=3), use_tqdm=False)
    assert output.outputs[0].text in odd


def test_str_03_text_that_spells_a_special_token_is_text(brief):
    """llguidance 1.9 would write forced text with special tokens, which are none."""
    texts = ("<eos>", "eos")
    params = [_params("choice", [text]) for text in texts]
    for text, output in zip(
        texts, brief.generate(["^"] * 2, params, use_tqdm=False), strict=True
    ):
        done = output.outputs[0]
        assert (done.text, done.finish_reason) == (text, "stop")


def _deep(depth):
    schema = INTEGER
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


IMPOSSIBLE = (r"(a)\1", "(?=a)ab", r"[^\s\S]")  # some of HARD
MANY = [f"item {i}" for i in range(10_000)]
HARD = [
    ("regex", "foo**"),
    ("regex", "a{100000}"),
    ("regex", "((a{0,99}){0,99}){0,99}b"),
    ("regex", "(a{1000}){1000}"),
    ("regex", "(a|aa)*b"),
    ("regex", "(a+)+b"),
    ("regex", r"(a)\1"),
    ("regex", "(?=a)ab"),
    ("regex", r"[^\s\S]"),
    ("json", _deep(20)),
    ("json", _deep(200)),
    ("json", json.dumps(_deep(200))),
    ("json", {"enum": MANY}),
    ("json", {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}),
    ("json", {"type": "array", "maxItems": 10**6, "items": INTEGER}),
    ("json", {"properties": dict.fromkeys(MANY[:1500], INTEGER)}),
    ("choice", MANY),
    ("grammar", 'start: start "a" | "b"'),
    ("grammar", "start: start"),
    ("grammar", 'start: "a" start'),
    ("grammar", 'start: "a'),
    ("grammar", "root ::= nowhere"),
    ("grammar", 'start: "a"\nstart: "b"'),
    ("structural_tag", {"structures": [{"begin": "x"}], "triggers": ["x"]}),
]


def _is_member(text, kind, value):
    match kind:
        case "regex":
            return re.fullmatch(value.replace("**", "*"), text)
        case "json":
            return _valid(text, json.loads(value) if isinstance(value, str) else value)
        case "choice":
            return text in value
    return re.fullmatch("ba*", text)


def test_str_06_hard_grammars_cost_only_themselves(brief, check_idle):
    engine = brief.llm_engine
    healthy = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    (alone,) = brief.generate("^", healthy, use_tqdm=False)
    refused = []
    for number in range(5):
        engine.add_request(f"healthy {number}", "^", healthy)
    for number, (kind, value) in enumerate(HARD * 2):  # the second time as the first
        params = _params(kind, value, max_tokens=8, seed=number)
        try:
            engine.add_request(f"hard {number}", "^", params)
        except SamplingParamsError as error:
            refused.append((kind, error.field))
    outputs = {}
    while engine.has_unfinished_requests():
        outputs |= {o.request_id: o.outputs[0] for o in engine.step() if o.finished}
    for number in range(5):
        done = outputs.pop(f"healthy {number}")
        assert done.token_ids == alone.outputs[0].token_ids
    assert len(outputs) + len(refused) == 2 * len(HARD)
    assert all(field == f"structured_outputs.{kind}" for kind, field in refused)
    for name, done in outputs.items():
        kind, value = (HARD * 2)[int(name.split()[1])]
        # What waits for a slow one ends by an error where it would be refused.
        assert done.finish_reason == "error" or value not in IMPOSSIBLE
        assert done.finish_reason in ("stop", "length", "error")
        if done.finish_reason == "stop":
            assert _is_member(done.text, kind, value), (value, done.text)
    check_idle(brief)
