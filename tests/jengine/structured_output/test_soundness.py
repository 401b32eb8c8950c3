"""What comes out under a JSON schema is what the schema asks for.

200 random schemas, on a model that would rather say anything else and on a real one;
the oracles are `jsonschema` and llguidance's own matcher.
"""

import collections
import decimal
import json
import random

import jsonschema
import llguidance
import numpy as np
import pytest

from jengine import SamplingParams, StructuredOutputsParams
from jengine.testing import write_byte_tokenizer, write_markov_checkpoint

VOCAB = 320
NUM_SCHEMAS = 200
NAMES = [
    "a",
    "id",
    "naïve name",
    "名前",
    'quo"te',
    "back\\slash",
    "new\nline",
    "👍",
    "aé",
]
VALUES = [
    "red",
    "grün",
    "猫",
    "👍🏽",
    'a"b\\c',
    "\t\n",
    "\x01",
    "",
    0,
    -7,
    1.5,
    True,
    None,
]
PATTERNS = [
    "^[a-f]{1,4}$",
    "^[à-ÿ]{2,5}$",
    "^(猫|犬|🐎)+$",
    "^\\d{3}-\\d{4}$",
    '^[^\\s"]{1,6}$',
    "^(GET|POST) /[a-z/]{0,8}$",
    "^-?[0-9]+(\\.[0-9]{1,2})?$",
    "b+é",
]
FORMATS = ["uuid", "ipv4", "ipv6"]  # what llguidance knows exactly


class Generator:
    """Draws schemas; one seed, one schema."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def schema(self):
        """A schema whose own definitions may refer to themselves."""
        drawn = self.any(3)
        if self.rng.random() < 0.6:
            kind = self.rng.choice([self.object, self.array])
            drawn = kind(3)
        if self.rng.random() < 0.3:
            drawn = self.recursive()
        return drawn

    def any(self, depth):
        leaves = [self.integer, self.number, *[self.string] * 3, self.one_of_these]
        inner = [self.object, self.object, self.array, self.either, self.both]
        kind = self.rng.choice(leaves + (inner if depth else []))
        return kind(depth - 1) if kind in inner else kind()

    def integer(self):
        low = self.rng.randint(-1000, 1000)
        low_word = self.rng.choice(["minimum", "exclusiveMinimum"])
        high_word = self.rng.choice(["maximum", "exclusiveMaximum"])
        limits = {low_word: low, high_word: low + self.rng.choice([2, 30, 4000])}
        drawn = {"type": "integer"}
        drawn |= dict(self.rng.sample(sorted(limits.items()), self.rng.randint(0, 2)))
        if self.rng.random() < 0.2:
            drawn = {"type": "integer", "multipleOf": self.rng.choice([2, 5, 12])}
        return drawn

    def number(self):
        low = round(self.rng.uniform(-50, 50), self.rng.randint(0, 3))
        high = round(low + self.rng.choice([0.5, 3, 70.25]), 3)
        low_word = self.rng.choice(["minimum", "exclusiveMinimum"])
        high_word = self.rng.choice(["maximum", "exclusiveMaximum"])
        limits = {low_word: low, high_word: high}
        picked = self.rng.sample(sorted(limits.items()), self.rng.randint(0, 2))
        return {"type": "number"} | dict(picked)

    def string(self):
        low = self.rng.randint(0, 3)
        return self.rng.choice(
            [
                {"type": "string", "minLength": low, "maxLength": low + 4},
                {"type": "string", "maxLength": 12},
                {"type": "string", "pattern": self.rng.choice(PATTERNS)},
                {"type": "string", "format": self.rng.choice(FORMATS)},
                {"type": ["string", "null"], "maxLength": 6},
                {"type": "string"},
            ]
        )

    def one_of_these(self):
        drawn = self.rng.sample(VALUES, self.rng.randint(1, 4))
        return self.rng.choice(
            [
                {"enum": drawn},
                {"enum": drawn},
                {"const": {"k": drawn}},
                {"type": "boolean"},
            ]
        )

    def array(self, depth):
        low = self.rng.randint(0, 2)
        drawn = {"type": "array", "items": self.any(depth), "maxItems": low + 2}
        if low:
            drawn["minItems"] = low
        if self.rng.random() < 0.3:
            drawn["prefixItems"] = [self.any(0), self.any(0)]
            drawn["items"] = self.rng.choice([False, self.any(0)])
            drawn |= {"minItems": 1, "maxItems": 2 if drawn["items"] is False else 4}
        return drawn

    def object(self, depth):
        names = self.rng.sample(NAMES, self.rng.randint(1, 4))
        drawn = {"type": "object", "properties": {n: self.any(depth) for n in names}}
        drawn["required"] = self.rng.sample(names, self.rng.randint(0, len(names)))
        more = self.rng.choice([False, False, None, True, {"type": "integer"}])
        if more is not None:
            drawn["additionalProperties"] = more
        if self.rng.random() < 0.2:
            drawn["patternProperties"] = {"^x-": {"type": "boolean"}}
        return drawn

    def either(self, depth):
        return {"anyOf": [self.any(depth), self.any(depth)]}

    def both(self, depth):
        return {"allOf": [self.integer_range(0, 99), self.integer_range(10, 500)]}

    def integer_range(self, low, high):
        return {"type": "integer", "minimum": low, "maximum": high}

    def recursive(self):
        node = {"$ref": "#/$defs/node"}
        fields = {"value": self.any(1), "é": {"type": "array", "items": node}}
        more = self.rng.choice([{"maxItems": 2}, {}])
        fields["é"] |= more
        tree = {"type": "object", "properties": fields, "required": ["value"]}
        chain = {"anyOf": [{"type": "null"}, {"type": "array", "prefixItems": [node]}]}
        drawn = self.rng.choice([tree | {"additionalProperties": False}, tree, chain])
        return {"$defs": {"node": drawn}, "type": "object"} | {
            "properties": {"root": node},
            "required": ["root"],
            "additionalProperties": False,
        }


def read(text):
    """Read JSON with exact numbers: their nearest float can lie outside a range."""

    def number(digits):
        try:
            return decimal.Decimal(digits)
        except decimal.InvalidOperation:  # an exponent of 20 digits
            return float(digits)

    return json.loads(text, parse_float=number)


class Checker:
    """Judges what an engine said under a schema."""

    def __init__(self, llm):
        self.tokenizer = llm.get_tokenizer()
        ends = self.tokenizer.eos_token_id
        backend = self.tokenizer.backend_tokenizer.to_str()
        self.matchers = llguidance.LLTokenizer(backend, eos_token=ends)

    def check(self, schema, done, max_tokens):
        """Raises unless it is a text of the language, or the start of one."""
        source = llguidance.LLMatcher.grammar_from_json_schema(schema)
        matcher = llguidance.LLMatcher(self.matchers, source)
        ids = [i for i in done.token_ids if i != self.tokenizer.eos_token_id]
        assert matcher.try_consume_tokens(ids) == len(ids)
        if done.finish_reason == "length":
            assert len(done.token_ids) == max_tokens
            return
        assert done.finish_reason == "stop"
        assert matcher.is_accepting()
        validator = jsonschema.Draft202012Validator(
            read(json.dumps(schema)),
            format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER,
        )
        validator.validate(read(done.text))


def run(llm, schemas, temperature, max_tokens, prompt):
    """Ask for a text of each schema; return how often each reason ended one."""
    params = [
        SamplingParams(
            temperature=temperature,
            seed=number,
            max_tokens=max_tokens,
            structured_outputs=StructuredOutputsParams(json=schema),
        )
        for number, schema in enumerate(schemas)
    ]
    outputs = llm.generate([prompt] * len(params), params, use_tqdm=False)
    checker, reasons = Checker(llm), collections.Counter()
    for schema, output in zip(schemas, outputs, strict=True):
        done = output.outputs[0]
        try:
            checker.check(schema, done, max_tokens)
        except (AssertionError, ValueError, jsonschema.ValidationError) as error:
            pytest.fail(f"{error!r}\nof {done.text!r}\nunder {json.dumps(schema)}")
        reasons[done.finish_reason] += 1
    return reasons


@pytest.fixture(scope="module")
def adversary(tmp_path_factory, make_llm):
    """Likes random things after each byte, escapes and quotes above all."""
    folder = write_byte_tokenizer(tmp_path_factory.mktemp("adversary"))
    rows = np.random.default_rng(0).normal(0, 3, (VOCAB, VOCAB)).astype(np.float32)
    for liked, strength in (("\\", 6), ('"', 9), ("]}", 7), ("0123456789.", 2)):
        rows[:, list(liked.encode())] += strength
    for before, after in (("\\", "u"), ("u", "0"), ("0", "06"), ("6", "1f")):
        rows[np.ix_(list(before.encode()), list(after.encode()))] += 6
    write_markov_checkpoint(folder, rows, vocab_size=VOCAB, eos_token_id=257)
    return make_llm(folder, skip_tokenizer_init=False)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0, 1])
def test_an_adversary_keeps_to_200_schemas(adversary, check_idle, temperature):
    schemas = [Generator(seed).schema() for seed in range(NUM_SCHEMAS)]
    reasons = run(adversary, schemas, temperature, 64, "^")
    check_idle(adversary)
    assert reasons["stop"] > NUM_SCHEMAS / 2
    assert reasons["length"] > 0


@pytest.mark.checkpoint
@pytest.mark.slow
def test_a_real_model_keeps_to_schemas(smollm2_gguf, make_llm, check_idle):
    # One seat: every size more is a program that takes 10 to 25 s to compile.
    sizes = {"max_num_seqs": 1, "max_num_batched_tokens": 16, "max_model_len": 128}
    llm = make_llm(smollm2_gguf, skip_tokenizer_init=False, **sizes)
    schemas = [Generator(seed).schema() for seed in range(0, NUM_SCHEMAS, 40)]
    reasons = run(llm, schemas, 0, 40, "JSON:") + run(llm, schemas, 1, 40, "JSON:")
    check_idle(llm)
    assert reasons["stop"] > len(schemas) / 2
