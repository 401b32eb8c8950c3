"""What llguidance would take from a JSON schema without keeping to it."""

import json
from collections.abc import Mapping

import llguidance

from jengine.structured_output.constraint import GrammarError
from jengine.structured_output.regex_rewrite import narrowed_pattern
from jengine.structured_output.schema_numbers import refuse_lost_numbers

_NAMED = ("properties", "patternProperties", "$defs", "definitions")
_VALUES = ("const", "enum", "default", "examples")  # keywords without schemas


def refuse_unkept(schema: object, place: str = "#") -> None:
    """Refuse a schema whose keywords llguidance accepts but does not enforce.

    Args:
      schema: parsed JSON.
      place: of the schema, for the error.

    Raises:
      GrammarError: naming the keyword and its place.
    """
    if isinstance(schema, list):
        for number, one in enumerate(schema):
            refuse_unkept(one, f"{place}/{number}")
    if not isinstance(schema, Mapping):
        return
    if _counts_equal_names(schema):
        raise GrammarError(
            f"minProperties at {place} is not supported where more than one of the"
            " properties may have any name: equal names would count twice"
        )
    if _has_spent_patterns(schema):
        raise GrammarError(
            f"patternProperties at {place} is not supported where it matches no name"
            " but those of properties and required: say there what it asks of them"
        )
    refuse_lost_numbers(schema, place)
    for keyword, value in schema.items():
        inside = f"{place}/{keyword}"
        if keyword in _NAMED and isinstance(value, Mapping):
            for name, one in value.items():
                refuse_unkept(one, f"{inside}/{name}")
        elif keyword not in _VALUES:
            refuse_unkept(value, inside)


def _counts_equal_names(schema: Mapping[str, object]) -> bool:
    least, required = schema.get("minProperties"), schema.get("required")
    num_required = len(required) if isinstance(required, list) else 0
    if not isinstance(least, int | float) or least - num_required < 2:
        return False
    patterns = schema.get("patternProperties")
    return schema.get("additionalProperties") is not False or bool(patterns)


def _has_spent_patterns(schema: Mapping[str, object]) -> bool:
    """Whether no name is left for a pattern once all properties have been named.

    llguidance (1.9) lets a comma follow the last one even so, and nothing follows that.
    """
    patterns = schema.get("patternProperties")
    known = _own_names(schema)
    is_closed = schema.get("additionalProperties") is False
    if not (is_closed and known and patterns and isinstance(patterns, Mapping)):
        return False
    zero = {"const": 0}
    trial = {
        "type": "object",
        "properties": dict.fromkeys(known, zero),
        "required": known,
        "patternProperties": dict.fromkeys(map(narrowed_pattern, patterns), zero),
        "additionalProperties": False,
        "x-guidance": {"whitespace_flexible": False},
    }
    grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(trial))
    matcher = llguidance.LLMatcher(llguidance.LLTokenizer("byte"), grammar, log_level=0)
    listed = (f"{json.dumps(name, ensure_ascii=False)}:0," for name in known)
    said = ("{" + "".join(listed)).encode(errors="replace")
    if not matcher.consume_tokens(list(said)):
        return False  # it cannot be compiled: for others to refuse
    matcher.compute_bitmask()
    return matcher.is_error()


def _own_names(schema: Mapping[str, object]) -> list[str]:
    """Names that a schema describes or requires; each is given once at most."""
    found: list[object] = []
    for keyword in ("properties", "required"):
        named = schema.get(keyword)
        found += named if isinstance(named, list | Mapping) else []
    return list(dict.fromkeys(name for name in found if isinstance(name, str)))
