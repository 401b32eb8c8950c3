"""`StructuredOutputsParams`: what the text of one request must look like.

Names are vLLM's. What can be judged without a tokenizer is checked here; whether a
grammar can be compiled is checked when a request is added. Standard library only.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, no_type_check

from jengine.errors import SamplingParamsError

KINDS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
@no_type_check  # it checks its own fields, and says more than a type checker would
class StructuredOutputsParams:
    """What the text of one request must look like: exactly one kind of constraint.

    >>> StructuredOutputsParams(choice=["yes", "no"]).kind
    'choice'

    Attributes:
      json: a JSON schema, as a dict or as text.
      regex: a regular expression that the whole text matches.
      choice: the texts to choose among.
      grammar: a grammar in Lark's or GBNF's notation; its start rule is `start` or
        `root`.
      json_object: True for any JSON object.
      structural_tag: parts of a free text that follow schemas: a dict (or its JSON
        text) of `structures`, each with `begin`, `schema` and `end`, and `triggers`;
        or of `format`, which is of type `triggered_tags`, `tag` or `json_schema`.
      disable_any_whitespace: allow no white space between the tokens of JSON.
      disable_additional_properties: objects have no properties but those that a schema
        names, where it does not say itself.
      whitespace_pattern: regular expression of the white space between the tokens of
        JSON.

    Raises:
      SamplingParamsError: no kind, several, or a value that is none of these.
    """

    json: str | Mapping[str, Any] | bool | None = None
    regex: str | None = None
    choice: tuple[str, ...] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: str | Mapping[str, Any] | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: str | None = None

    def __post_init__(self) -> None:
        """Check what was given and keep its normal form: JSON as text."""
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            raise SamplingParamsError(
                "structured_outputs", given, f"exactly one of {', '.join(KINDS)}"
            )
        for field in ("disable_any_whitespace", "disable_additional_properties"):
            if type(getattr(self, field)) is not bool:
                raise _refusal(field, getattr(self, field), "True or False")
        pattern = self.whitespace_pattern
        if pattern is not None and (not isinstance(pattern, str) or not pattern):
            raise _refusal("whitespace_pattern", pattern, "a regular expression")
        kind = given[0]
        value = getattr(self, kind)
        object.__setattr__(self, kind, _NORMAL_FORMS[kind](kind, value))

    @property
    def kind(self) -> str:
        """Which constraint it is."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
@no_type_check
class GuidedDecodingParams(StructuredOutputsParams):
    """vLLM's older name of the same, with the choice of a library that it had.

    Attributes:
      backend: "guidance" (llguidance) is the only one; None and "auto" take it too.
      disable_fallback: changes nothing, for there is none.
    """

    backend: str | None = None
    disable_fallback: bool = False

    def __post_init__(self) -> None:
        """Check the library, too."""
        StructuredOutputsParams.__post_init__(self)
        if self.backend not in (None, "auto", "guidance"):
            allowed = "'auto' or 'guidance'"
            raise SamplingParamsError("guided_decoding.backend", self.backend, allowed)


def _refusal(field: str, found: object, allowed: str) -> SamplingParamsError:
    return SamplingParamsError(f"structured_outputs.{field}", found, allowed)


def _as_json(field: str, value: object) -> str:
    """Return JSON text, in one spelling so that equal schemas are compiled once."""
    allowed = "a JSON object, as a dict or as text"
    try:
        parsed = json.loads(value) if isinstance(value, str) else value
        text = json.dumps(parsed, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise _refusal(field, value, f"{allowed} ({error})") from error
    is_schema = isinstance(parsed, Mapping | bool)  # true and false are schemas
    if not is_schema or (field != "json" and isinstance(parsed, bool)):
        raise _refusal(field, value, allowed)
    return text


def _as_text(field: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise _refusal(field, value, "a text that is not empty and holds no NUL")
    return value


def _as_choice(field: str, value: object) -> tuple[str, ...]:
    listed = tuple(value) if isinstance(value, list | tuple) else ()
    if not listed or not all(isinstance(one, str) and one for one in listed):
        raise _refusal(field, value, "a list of texts, none of them empty")
    return tuple(dict.fromkeys(listed))


def _as_true(field: str, value: object) -> bool:
    if value is not True:
        raise _refusal(field, value, "True, or None for another constraint")
    return True


_NORMAL_FORMS = {
    "json": _as_json,
    "regex": _as_text,
    "choice": _as_choice,
    "grammar": _as_text,
    "json_object": _as_true,
    "structural_tag": _as_json,
}
