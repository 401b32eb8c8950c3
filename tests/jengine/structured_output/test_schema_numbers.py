"""A number is taken only if the same one comes out."""

import decimal
import json
import re

import hypothesis
import hypothesis.strategies as st
import llguidance
import pytest

from jengine.structured_output.constraint import GrammarError
from jengine.structured_output.schema_numbers import refuse_lost_numbers

TOKENIZER = llguidance.LLTokenizer("byte")
LOST = [
    2**53 + 1,
    -(2**53) - 1,
    1234567890123456789,
    12345678901234567890,
    2**63,
    2**64 - 1,
    10**20,
    10**40,
    -(2**63),  # llguidance ends the process over these
    -(2**63) + 1,
    -(2.0**63),
    -1e19,
    123456789.12345679,
]
KEPT = [0, -7, 2**53, 2**53 + 2, 2**63 - 1, 0.1, 0.1 + 0.2, 1e-7, 1e18, -0.0, 5e-324]


def said(schema):
    """The only text of a schema."""
    grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema))
    matcher = llguidance.LLMatcher(TOKENIZER, grammar, log_level=0)
    return bytes(matcher.compute_ff_tokens()).decode()


@pytest.mark.parametrize("value", LOST)
def test_a_number_that_would_be_another_is_refused(value):
    named = re.escape(str(value))
    for keyword, found in (
        ("const", value),
        ("const", {"a": [1, value]}),
        ("enum", ["a", value]),
    ):
        with pytest.raises(GrammarError, match=rf"{keyword} at #/x has .* {named},"):
            refuse_lost_numbers({keyword: found}, "#/x")
    for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        with pytest.raises(GrammarError, match=rf"{keyword} at #/x is {named},"):
            refuse_lost_numbers({keyword: value}, "#/x")


@pytest.mark.parametrize("value", KEPT)
def test_a_number_that_stays_is_taken(value):
    schema = {"const": value, "enum": [value, True, None], "minimum": value}
    refuse_lost_numbers(schema, "#")
    written = decimal.Decimal(said({"const": value}))
    assert written == decimal.Decimal(repr(value))


def test_an_exclusive_bound_needs_a_float_beside_it():
    for keyword in ("exclusiveMinimum", "exclusiveMaximum"):
        refuse_lost_numbers({keyword: 2**53 - 1}, "#")
        with pytest.raises(GrammarError, match=f"{keyword} at # is"):
            refuse_lost_numbers({keyword: -(2**53)}, "#")


def test_other_values_are_left_alone():
    refuse_lost_numbers({"minimum": True, "maximum": "9", "default": 2**53 + 1}, "#")


@hypothesis.given(st.floats(-1e18, 1e18) | st.integers(-(2**62), 2**63))
@hypothesis.settings(max_examples=100, deadline=None)
def test_what_is_taken_comes_out(value):
    try:
        refuse_lost_numbers({"const": value}, "#")
    except GrammarError:
        hypothesis.reject()
    assert decimal.Decimal(said({"const": value})) == decimal.Decimal(repr(value))
