"""What a JSON schema asks that no finite value can give."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from jengine.structured_output.constraint import GrammarError
from jengine.structured_output.schema_rewrite import rewrite


def without_endless(schema: object) -> object:
    """Replace each `$ref` that every value would follow for ever by the schema false.

    An object whose own kind is a required property of it is one. llguidance (1.9)
    would begin such a value and find out later that nothing goes on.

    Args:
      schema: parsed JSON; it stays as it is.

    Raises:
      GrammarError: no value is left at all.
    """
    targets = _local_targets(schema)
    pending = set(targets)  # not known to end yet
    while ending := {ref for ref in pending if _ends(targets[ref], pending)}:
        pending -= ending
    if not _ends(schema, pending):
        raise GrammarError(f"no text follows $ref {min(pending)!r}: it has no end")

    def give_up(one: dict[str, Any]) -> None:
        if _ref(one) in pending:
            del one["$ref"]
            one["allOf"] = [False]

    return rewrite(schema, give_up) if pending else schema


def _local_targets(schema: object) -> dict[str, object]:
    """Return the schemas that references inside the document lead to."""
    refs: set[str] = set()
    rewrite(schema, lambda one: refs.add(_ref(one)))
    targets: dict[str, object] = {}
    for ref in refs:
        try:
            targets[ref] = _follow(schema, ref)
        except (KeyError, IndexError, ValueError, TypeError):
            continue  # nothing is known about others
    return targets


def _ref(schema: dict[str, Any]) -> str:
    ref = schema.get("$ref")
    return ref if isinstance(ref, str) else ""


def _follow(schema: Any, ref: str) -> object:
    """Follow a JSON pointer such as `#/$defs/name`."""
    start, *steps = ref.split("/")
    if start != "#":
        raise KeyError(ref)
    for step in steps:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        schema = schema[int(name) if isinstance(schema, list) else name]
    return schema


def _ends(schema: object, pending: set[str]) -> bool:
    """Whether a value can do without what `pending` refers to."""
    if not isinstance(schema, dict):
        return True
    if _ref(schema) in pending:
        return False
    needs_all = all(_ends(one, pending) for one in _needed(schema))
    choices = (schema.get(keyword) for keyword in ("anyOf", "oneOf"))
    return needs_all and all(
        any(_ends(one, pending) for one in choice)
        for choice in choices
        if isinstance(choice, list) and choice
    )


def _needed(schema: dict[str, Any]) -> Iterator[object]:
    """Give the schemas inside that every value has to satisfy, or to contain."""
    every = schema.get("allOf")
    yield from every if isinstance(every, list) else ()
    kind = schema.get("type")
    if kind in ("object", ["object"]):
        properties, required = schema.get("properties", {}), schema.get("required")
        if isinstance(properties, dict) and isinstance(required, list):
            named = (name for name in required if isinstance(name, str))
            yield from (properties.get(name) for name in named)
    if kind in ("array", ["array"]):
        first, least = schema.get("prefixItems", []), schema.get("minItems", 0)
        if isinstance(least, float) and least.is_integer():
            least = int(least)
        if isinstance(first, list) and isinstance(least, int):
            yield from first[:least]
            yield schema.get("items") if least > len(first) else None
