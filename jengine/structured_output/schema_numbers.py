"""Numbers of a JSON schema that llguidance would take for others."""

import decimal
import json
from collections.abc import Iterator, Mapping

import llguidance

from jengine.structured_output.constraint import GrammarError

_Number = int | float

_INCLUSIVE = ("minimum", "maximum")
_EXCLUSIVE = ("exclusiveMinimum", "exclusiveMaximum")
_GREATEST = 2**63 - 1  # whole numbers are held in 64 bits
_LEAST = -(2**63) + 2048  # -2**63 as an integer ends the process
_EXACT = 2**53  # up to here every whole number is a float of its own
_SAFE_DIGITS = 15  # of a float near 1, which survive any reading
_SAFE_EXPONENT = 7

_WAY_OUT = (
    f"use a number of at most {_SAFE_DIGITS} digits, or a whole one within 2**53 of 0"
)


def refuse_lost_numbers(schema: Mapping[str, object], place: str) -> None:
    """Refuse values and bounds that would come out as other numbers.

    llguidance (1.9) reads numbers as floats, not always the nearest, and cuts whole
    ones to 64 bits.

    Args:
      schema: one schema; those inside of it are not looked at.
      place: of the schema, for the error.

    Raises:
      GrammarError: naming the keyword, its place and the number.
    """
    for keyword in ("const", "enum"):
        for value in _numbers(schema.get(keyword)):
            if not _survives(value):
                raise GrammarError(
                    f"{keyword} at {place} has the number {value}, which is not"
                    f" supported: {_WAY_OUT}, or say it as a string"
                )
    for keyword in (*_INCLUSIVE, *_EXCLUSIVE):
        for value in _own_numbers(schema.get(keyword)):
            if not _is_kept_bound(keyword, value):
                raise GrammarError(
                    f"{keyword} at {place} is {value}, which is not supported:"
                    f" {_WAY_OUT}, or leave {keyword} out"
                )


def _numbers(value: object) -> Iterator[_Number]:
    """Give the numbers inside a JSON value."""
    if isinstance(value, list):
        for one in value:
            yield from _numbers(one)
    elif isinstance(value, Mapping):
        yield from _numbers(list(value.values()))
    else:
        yield from _own_numbers(value)


def _own_numbers(value: object) -> Iterator[_Number]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def _is_kept_bound(keyword: str, value: _Number) -> bool:
    if keyword in _EXCLUSIVE and abs(value) >= _EXACT:
        return False  # the whole number beside it may be the same float
    return _survives(value)


def _survives(value: _Number) -> bool:
    """Whether llguidance reads a number and writes the same one."""
    if isinstance(value, int) and abs(value) <= _EXACT:
        return True
    if not _LEAST <= value <= _GREATEST:
        return False
    number = decimal.Decimal(repr(value))
    few_digits = len(number.normalize().as_tuple().digits) <= _SAFE_DIGITS
    if few_digits and abs(number.adjusted()) <= _SAFE_EXPONENT:
        return True
    return _comes_out(value, number)


def _comes_out(value: _Number, number: decimal.Decimal) -> bool:
    schema = json.dumps({"const": value})
    try:
        grammar = llguidance.LLMatcher.grammar_from_json_schema(schema)
    except ValueError:
        return False
    matcher = llguidance.LLMatcher(llguidance.LLTokenizer("byte"), grammar, log_level=0)
    with decimal.localcontext(prec=max(1, len(number.as_tuple().digits))):
        text = format(number.normalize(), "f")
    return matcher.consume_tokens(list(text.encode())) and matcher.is_accepting()
