"""What llguidance would take from a JSON schema without keeping to it."""

from collections.abc import Mapping

from jengine.structured_output.constraint import GrammarError

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
    if not isinstance(least, int) or least - num_required < 2:
        return False
    patterns = schema.get("patternProperties")
    return schema.get("additionalProperties") is not False or bool(patterns)
