"""llguidance behind our interface, on a tokenizer of bytes."""

import json
import re
import threading

import jsonschema
import numpy as np
import pytest
import transformers

from jengine.errors import UnsupportedError
from jengine.structured_output import guidance
from jengine.structured_output.constraint import ConstraintError, GrammarError
from jengine.structured_output.guidance import GuidanceGrammars
from jengine.structured_outputs import StructuredOutputsParams
from jengine.testing import write_byte_tokenizer
from jengine.text.tokenizer import load_tokenizer

VOCAB = 400  # more logits than the tokenizer has ids


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bytes")
    write_byte_tokenizer(folder)
    return load_tokenizer(folder)


@pytest.fixture(scope="module")
def grammars(tokenizer):
    ends = [tokenizer.eos_token_id]
    return GuidanceGrammars(tokenizer, vocab_size=VOCAB, eos_token_ids=ends)


def start(grammars, stop_token_ids=(), **asked):
    compiled = grammars.compile(StructuredOutputsParams(**asked))
    return grammars.constraint(compiled, stop_token_ids)


def allowed(constraint):
    mask = np.full(-(-VOCAB // 32), -1, np.int32)
    constraint.restrict(mask)
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    return np.nonzero(bits)[0].tolist()


def accepts(grammars, tokenizer, text, **asked):
    """Whether the grammar takes the text, id by id, and may end there."""
    constraint = start(grammars, **asked)
    ids = tokenizer.encode(text, add_special_tokens=False)
    for index, token in enumerate(ids):
        if token not in allowed(constraint):
            return False
        if constraint.advance(token):
            return index == len(ids) - 1
    return tokenizer.eos_token_id in allowed(constraint)


@pytest.mark.parametrize(
    ("asked", "good", "bad"),
    [
        ({"regex": "[ab]{2}c?"}, ["ab", "bbc"], ["a", "abcc", ""]),
        ({"choice": ["猫", "犬é"]}, ["猫", "犬é"], ["犬", "e"]),
        ({"grammar": 'root ::= "x" | "y" root'}, ["x", "yyx"], ["y", "xx"]),
        ({"grammar": 'start: "x" | "y" start'}, ["x", "yyx"], ["y"]),
        ({"grammar": '?start: X\nX: "x" | "y"'}, ["x", "y"], ["xy"]),
        ({"grammar": 'start: "a ::= " /[ab]/'}, ["a ::= b"], ["b"]),
        ({"json_object": True}, ["{}", '{"a": [1, null]}'], ["[]", "1"]),
        ({"json": True}, ["1", "[]", '"a"'], ["a"]),
        (
            {"json": {"type": "integer"}, "disable_any_whitespace": True},
            ["1", "-20"],
            ["1.5", '"1"'],
        ),
    ],
    ids=str,
)
def test_texts_inside_and_outside(grammars, tokenizer, asked, good, bad):
    for text in good:
        assert accepts(grammars, tokenizer, text, **asked), text
    for text in bad:
        assert not accepts(grammars, tokenizer, text, **asked), text


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"choice": ["x<eos>y", "x<eos>z"]}, "x<eos>y"),
        ({"regex": r"\d<eos>[0-9]"}, "1<eos>7"),
        ({"grammar": 'root ::= "<eos>" | "<pad>"'}, "<pad>"),
        ({"grammar": '%llguidance {}\nstart: "<eos>"'}, "<eos>"),
        ({"json": {"const": "<eos>é"}}, '"<eos>é"'),
        (
            {
                "json": {
                    "properties": {"<eos>": {"enum": ["<bos>"]}},
                    "required": ["<eos>"],
                },
                "disable_any_whitespace": True,
                "disable_additional_properties": True,
            },
            '{"<eos>":"<bos>"}',
        ),
    ],
    ids=str,
)
def test_a_text_that_spells_a_special_token(grammars, asked, text):
    constraint, is_over = start(grammars, **asked), False
    for number, byte in enumerate(text.encode()):
        assert byte in allowed(constraint), number
        assert not {256, 258} & {*allowed(constraint)}
        is_over = constraint.advance(byte)
    assert is_over


def test_ids_without_text_are_never_allowed(grammars, tokenizer):
    constraint = start(grammars, regex="(.|\\n)*")
    assert max(allowed(constraint)) <= tokenizer.max_token_id


def test_random_walks_follow_the_schema(grammars, tokenizer):
    schema = {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": -5, "maximum": 40},
            "s": {"type": "string", "pattern": "^[a-f]{1,4}$"},
            "l": {"type": "array", "items": {"enum": [1, "é", None]}, "maxItems": 3},
        },
        "required": ["n", "s", "l"],
        "additionalProperties": False,
    }
    rng = np.random.default_rng(0)
    for _ in range(40):
        constraint, ids = start(grammars, json=schema), []
        for _ in range(300):
            token = int(rng.choice(allowed(constraint)))
            ids.append(token)
            if constraint.advance(token):
                break
        else:
            pytest.fail("the walk does not end")
        jsonschema.validate(json.loads(tokenizer.decode(ids)), schema)


def test_properties_that_no_schema_names(grammars, tokenizer):
    schema = {"type": "object", "properties": {"a": {"type": "null"}}}
    text = '{"a": null, "b": 1}'
    assert accepts(grammars, tokenizer, text, json=schema)
    closed = {"disable_additional_properties": True}
    assert not accepts(grammars, tokenizer, text, json=schema, **closed)
    assert accepts(grammars, tokenizer, '{"a": null}', json=schema, **closed)
    opened = schema | {"additionalProperties": True}
    assert accepts(grammars, tokenizer, text, json=opened, **closed)


def test_white_space_is_bounded_and_can_be_chosen(grammars, tokenizer):
    schema = {"type": "array", "items": {"type": "null"}, "minItems": 1}

    def takes(text, **options):
        return accepts(grammars, tokenizer, text, json=schema, **options)

    assert takes("[null]")
    assert takes("[\n    null\n]")
    assert not takes("[  null]")
    assert not takes("[ null]", disable_any_whitespace=True)
    assert takes("[__null]", whitespace_pattern="_+")


def test_a_structural_tag(grammars, tokenizer):
    integer = {"type": "object", "properties": {"x": {"type": "integer"}}}
    tag = {
        "structures": [
            {"begin": "<f>", "schema": integer | {"required": ["x"]}, "end": "</f>"}
        ],
        "triggers": ["<f"],
    }
    assert accepts(grammars, tokenizer, 'so <f>{"x": 3}</f> ok', structural_tag=tag)
    assert accepts(grammars, tokenizer, "only text", structural_tag=tag)
    assert not accepts(grammars, tokenizer, "<f>{}</f>", structural_tag=tag)
    with pytest.raises(GrammarError, match="triggers"):
        start(grammars, structural_tag=tag | {"triggers": ["<g"]})


def test_structural_tags_by_format(grammars, tokenizer):
    schema = {"type": "json_schema", "json_schema": {"const": 1}}
    tag = {"type": "tag", "begin": "<f>", "content": schema, "end": "</f>"}
    free = {"type": "triggered_tags", "triggers": ["<f"], "tags": [tag]}
    for form, good, bad in (
        (schema, "1", "<f>1</f>"),
        (tag, "<f>1</f>", "so <f>1</f>"),
        (free, "so <f>1</f> ok", "<f>2</f>"),
    ):
        asked = {"structural_tag": {"type": "structural_tag", "format": form}}
        assert accepts(grammars, tokenizer, good, **asked), good
        assert not accepts(grammars, tokenizer, bad, **asked), bad


def test_a_tag_that_ends_with_the_end_of_the_output(grammars):
    tag = {
        "structures": [{"begin": "<f>", "schema": {"const": 1}, "end": "<eos>"}],
        "triggers": ["<f"],
    }
    constraint = start(grammars, structural_tag=tag)
    for byte in b"<f>1":
        constraint.advance(byte)
    assert allowed(constraint) == [ord("<")]


def test_a_stop_id_may_come_only_where_the_text_may_end(grammars, tokenizer):
    (x,) = tokenizer.encode("x", add_special_tokens=False)
    (a,) = tokenizer.encode("a", add_special_tokens=False)
    constraint = start(grammars, [x], regex="ax?a")
    assert allowed(constraint) == [a]
    constraint.advance(a)
    assert allowed(constraint) == [a]  # the regex allows x; the text cannot end
    assert constraint.advance(a) is True
    with pytest.raises(ConstraintError):
        start(grammars, [x], regex="ax?a").advance(x)


def test_an_end_id_that_is_text_too(tokenizer):
    newline, a = 10, ord("a")
    ends = [newline, tokenizer.eos_token_id]
    grammars = GuidanceGrammars(tokenizer, vocab_size=VOCAB, eos_token_ids=ends)
    constraint = start(grammars, json={"type": "array"})
    constraint.advance(ord("["))
    assert newline not in allowed(constraint)  # white space, but it ends the request
    constraint.advance(ord("]"))
    constraint = start(grammars, regex="a(\na)*")
    assert allowed(constraint) == [a]
    assert constraint.advance(a) is False
    assert allowed(constraint) == sorted(ends)
    assert constraint.advance(newline) is False  # under ignore_eos it does not end it
    assert allowed(constraint) == [a]
    constraint.advance(a)
    assert constraint.advance(tokenizer.eos_token_id) is True


def test_where_only_an_end_id_could_follow_it_may_come(grammars):
    a, b = b"ab"
    constraint = start(grammars, [b], regex="abc|abb")
    constraint.advance(a)
    assert allowed(constraint) == [b]
    assert constraint.advance(b) is False
    assert allowed(constraint) == [ord("c")]


@pytest.mark.parametrize(
    ("asked", "begun"),
    [
        ({"grammar": 'root ::= a "b"\na ::= "b"+'}, ""),
        ({"grammar": 'root ::= num " " num\nnum ::= [0-9]+ [ ]*'}, "1 "),
        ({"grammar": '%llguidance {"no_forcing": false}\nstart: /b+/ x\nx: "b"'}, ""),
        (
            {
                "json": {"type": "array", "items": {"const": 1}, "minItems": 2},
                "whitespace_pattern": "1+",
            },
            "[1",
        ),
        (
            {
                "json": {
                    "properties": {"a": {"type": "string"}},
                    "required": ["a"],
                    "x-guidance": {"key_separator": '"+'},
                },
                "disable_additional_properties": True,
                "disable_any_whitespace": True,
            },
            '{"a""',
        ),
        ({"regex": "b+b"}, "b"),
        ({"json": {"type": "string", "pattern": "^b+b$"}}, '"b'),
    ],
    ids=str,
)
def test_a_grammar_that_can_never_end_returns(grammars, asked, begun):
    found = []

    def follow():
        constraint = start(grammars, **asked)
        for byte in begun.encode():
            allowed(constraint)
            constraint.advance(byte)
        found.append(allowed(constraint))

    thread = threading.Thread(target=follow, daemon=True)  # it could not be ended
    thread.start()
    thread.join(60)
    assert found
    assert found[0]


def test_what_breaks_in_a_grammar_ends_its_own_request(grammars, monkeypatch):
    constraint = start(grammars, regex="ab")
    constraint.restart([ord("b")])  # not what the grammar allows
    assert allowed(constraint) == []
    constraint = start(grammars, regex="ab")
    assert allowed(constraint) == [ord("a")]

    def fail(matcher, words):
        raise ValueError("broken")

    monkeypatch.setattr(guidance, "fill_next_token_bitmask", fail)
    assert allowed(constraint) == []


def test_starting_over(grammars, tokenizer):
    ids = tokenizer.encode("abab", add_special_tokens=False)
    constraint = start(grammars, regex="(ab)*c")
    for token in ids:
        constraint.advance(token)
    expected = allowed(constraint)
    constraint.restart(ids[:3])
    assert allowed(constraint) != expected
    constraint.advance(ids[3])
    assert allowed(constraint) == expected
    with pytest.raises(ConstraintError):
        constraint.advance(ids[1])


def test_copies_do_not_share_a_state(grammars, tokenizer):
    compiled = grammars.compile(StructuredOutputsParams(regex="ab"))
    first, second = (grammars.constraint(compiled, ()) for _ in range(2))
    before = allowed(second)
    first.advance(before[0])
    assert allowed(second) == before


def test_what_a_tokenizer_must_have(tokenizer, tmp_path):
    with pytest.raises(UnsupportedError, match="end-of-sequence"):
        GuidanceGrammars(tokenizer, vocab_size=VOCAB, eos_token_ids=[])
    write_byte_tokenizer(tmp_path)
    slow = type(tokenizer)(
        hf=transformers.AutoTokenizer.from_pretrained(tmp_path),
        max_token_id=tokenizer.max_token_id,
        eos_token_id=1,
        special_token_ids=frozenset(),
        known_token_ids=frozenset(),
        backend=None,
    )
    with pytest.raises(UnsupportedError, match="fast tokenizer"):
        GuidanceGrammars(slow, vocab_size=VOCAB, eos_token_ids=[1])


def test_errors_say_what_is_wrong(grammars):
    for asked, words in (
        ({"regex": "[a-"}, "regex parse error"),
        ({"json": {"type": "array", "uniqueItems": True}}, "uniqueItems"),
        ({"json": {"$ref": "#/nope"}}, "nope"),
        ({"grammar": "start: nowhere"}, "nowhere"),
    ):
        with pytest.raises(GrammarError, match=re.escape(words)):
            start(grammars, **asked)
