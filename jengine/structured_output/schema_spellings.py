"""Words of a JSON schema that llguidance refuses, put as it knows them."""

import re
from typing import Any
from urllib.parse import quote

_DRAFT = re.compile(
    r"https?://json-schema\.org/"
    r"(?:(?P<old>draft-0[3467])|(?P<new>draft/20(?:19-09|20-12)))/schema#?"
)
_COUNTS = (
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
)
_ANNOTATIONS = ("binary", "password")  # formats that ask nothing of a text
_IN_A_FRAGMENT = "#/?:@!$&'()*+,;=%"  # besides letters, digits and "-._~"


def spell_out(schema: dict[str, Any]) -> None:
    """Change one schema, not those inside of it, so that llguidance (1.9) reads it.

    The meaning stays as it is. A dialect that is not known is read as 2020-12.
    """
    _name_dialect(schema)
    for keyword in _COUNTS:
        value = schema.get(keyword)
        if isinstance(value, float) and value.is_integer():
            schema[keyword] = int(value)
    if schema.get("uniqueItems") is False:
        del schema["uniqueItems"]
    if schema.get("format") in _ANNOTATIONS:
        del schema["format"]
    ref = schema.get("$ref")
    if isinstance(ref, str) and ref.startswith("#"):
        schema["$ref"] = quote(ref, safe=_IN_A_FRAGMENT)


def _name_dialect(schema: dict[str, Any]) -> None:
    dialect = schema.get("$schema")
    if not isinstance(dialect, str):
        return
    known = _DRAFT.fullmatch(dialect)
    if known is None:
        del schema["$schema"]
    elif known["old"]:
        schema["$schema"] = f"http://json-schema.org/{known['old']}/schema#"
    else:
        schema["$schema"] = f"https://json-schema.org/{known['new']}/schema"
