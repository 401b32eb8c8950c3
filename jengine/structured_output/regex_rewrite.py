r"""Regular expressions, narrowed to what every reader takes.

llguidance (1.9) reads them as Rust does, which differs from Python in what `\w` and
`\s` hold, and in classes: `&&`, `--`, `~~` and `[` are plain characters to Python. What
it lets through, `re.fullmatch` may refuse. Under a JSON string it also lets quotes and
backslashes through where a class with every control character holds but one of the two.
"""

import dataclasses
import re
from collections.abc import Mapping

from jengine.structured_output.constraint import GrammarError

_NUL = r"\x{0}"
_NOTHING = r"[^\s\S]"
_ESCAPE = (
    r"\\(?:[xu]\{[^}]*\}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}"
    r"|[pP](?:\{[^}]*\}|.)|0[0-7]{0,2}|[1-3][0-7]{2}|.)"
)
# A `]` is plain where a class starts.
_CLASS = r"\[(?:\^|(?!\^))(?:\]|\\.|[^\]\\])(?:\\.|[^\]\\])*\]"
_COMMENT = r"\(\?#[^)]*\)"
_PARTS = re.compile(rf"{_COMMENT}|{_CLASS}|{_ESCAPE}|\{{,\d*\}}|.", re.DOTALL)
_ITEMS = re.compile(rf"{_ESCAPE}|.", re.DOTALL)
_NUMBERED = re.compile(r"\\[xuU]\{?([0-9a-fA-F]+)\}?")
_OCTAL = re.compile(r"\\([0-7]+)")


@dataclasses.dataclass(frozen=True)
class _Reading:
    """What `narrowed` makes of each class: of what both take, and one of two takes."""

    both: Mapping[str, str]
    either: Mapping[str, str]
    is_quoted: bool  # under a JSON string


_PYTHON = _Reading(
    both={
        r"\w": r"[\p{L}\p{Nl}0-9_]",  # no marks, such as an accent by itself
        r"\W": r"[^\w\p{No}]",  # numerals such as ² are letters to Python
        r"\d": "[0-9]",  # they know the digits of different years' Unicode
        r"\S": r"[^\s\x1c-\x1f]",  # separators are white space to Python
    },
    either={
        r"\w": r"[\w\p{No}]",
        r"\W": r"[^\p{L}\p{Nl}0-9_]",
        r"\D": "[^0-9]",
        r"\s": r"[\s\x1c-\x1f]",
    },
    is_quoted=False,
)
# To JSON schema `\w` and `\d` are ASCII; to those who check it in Python they are not.
_QUOTED = _Reading(
    both={
        r"\w": "[A-Za-z0-9_]",
        r"\W": r"[^\p{L}\p{N}_]",
        r"\d": "[0-9]",
        r"\D": r"[^\p{Nd}]",
        r"\S": r"[^\s\x{1c}-\x{1f}]",
    },
    either={
        r"\w": r"[\p{L}\p{N}_]",
        r"\W": "[^A-Za-z0-9_]",
        r"\d": r"\p{Nd}",
        r"\D": "[^0-9]",
        r"\s": r"[\s\x{1c}-\x{1f}]",
    },
    is_quoted=True,
)

# What `narrowed_pattern` itself may have written.
OWN_PARTS = (_NUL, *_QUOTED.both.values(), *_QUOTED.either.values())


def narrowed(regex: str) -> str:
    r"""Return a regular expression that matches no more in Rust than in Python.

    >>> narrowed(r"\w\\w")
    '[\\p{L}\\p{Nl}0-9_]\\\\w'

    Args:
      regex: in Python's notation, for the whole of a text.

    Raises:
      GrammarError: it ends in the middle of an escape.
    """
    parts = [part for part in _parts(regex) if not part.startswith("(?#")]
    if parts[:1] == [r"\A"]:  # a whole text begins and ends there anyway
        del parts[0]
    if parts[-1:] == [r"\Z"]:
        del parts[-1]
    return "".join(
        part.replace("{,", "{0,") if part.startswith("{,") else _rewrite(part, _PYTHON)
        for part in parts
    )


def narrowed_pattern(pattern: str) -> str:
    r"""Return the pattern of a JSON string that llguidance keeps to.

    NUL is in none of its classes, unless quotes and backslashes are too: where a class
    holds all control characters, llguidance takes them for escaped ones.

    >>> narrowed_pattern('^[^"]$')
    '^[^"\\x{0}]$'

    Args:
      pattern: that some part of a text has to match.

    Raises:
      GrammarError: it ends in the middle of an escape.
    """
    return "".join(_rewrite(part, _QUOTED) for part in _parts(pattern))


def _parts(regex: str) -> list[str]:
    parts = _PARTS.findall(regex)
    if parts[-1:] == ["\\"]:
        raise GrammarError(
            f"the regular expression {regex!r} ends with a single backslash, which"
            r" escapes nothing; a backslash itself is written \\"
        )
    return parts


def _rewrite(part: str, reading: _Reading) -> str:
    if part.startswith("[") and len(part) > 1:
        return _class(part, reading)
    if reading.is_quoted and _code(part) == 0:
        return _NOTHING
    return reading.both.get(part, _plain(part))


def _class(text: str, reading: _Reading) -> str:
    """Rewrite a class in brackets; whatever else is inside is plain to Python."""
    is_negated = text.startswith("[^")
    items: list[str] = _ITEMS.findall(text[1 + is_negated : -1])
    known = reading.either if is_negated else reading.both
    written: list[str] = []
    while items:
        first = items.pop(0)
        if len(items) >= 2 and items[0] == "-":
            written.append(_range(first, items[1], reading))
            del items[:2]
        elif not reading.is_quoted or _code(first) != 0:
            written.append(known.get(first, _inside(first)))
    if is_negated:
        return f"[^{''.join(written)}{_NUL if reading.is_quoted else ''}]"
    return f"[{''.join(written)}]" if any(written) else _NOTHING


def _range(first: str, last: str, reading: _Reading) -> str:
    if reading.is_quoted and _code(first) == 0:
        if _code(last) == 0:
            return ""
        first = r"\x01"
    return f"{_inside(first)}-{_inside(last)}"


def _inside(item: str) -> str:
    """Write one character of a class so that it means nothing else to Rust."""
    if item == r"\b":
        return r"\x08"
    return f"\\{item}" if item in "[]&~-^# " else _plain(item)


def _plain(part: str) -> str:
    r"""Write an escape that Rust lacks, or takes for another: `\0`, `\<`, `\>`."""
    octal = _OCTAL.fullmatch(part)
    if octal and (part[1] == "0" or len(part) == 4):
        return f"\\x{int(octal[1], 8):02x}" if int(octal[1], 8) < 256 else part
    return part[1:] if part in (r"\<", r"\>") else part


def _code(item: str) -> int | None:
    """Return the code of a character that is not named by a letter."""
    if len(item) == 1:
        return ord(item)
    found, base = _NUMBERED.fullmatch(item), 16
    if not found:
        found, base = _OCTAL.fullmatch(item), 8
    return int(found[1], base) if found else None
