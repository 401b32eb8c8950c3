r"""Character classes of a regular expression, narrowed to what every reader takes.

llguidance (1.9) reads `\w` and `\s` as Rust does, which differs from Python in marks,
numerals and separators: what it lets through, `re.fullmatch` may refuse.
"""

import re

_PARTS = re.compile(r"\\.|\[\^?\]?|.", re.DOTALL)  # `]` is plain where a class starts

# What Rust and Python both take, and what one of the two takes.
_BOTH = {
    r"\w": r"[\p{L}\p{Nl}0-9_]",  # no marks, such as an accent by itself
    r"\W": r"[^\w\p{No}]",  # numerals such as ² are letters to Python
    r"\d": "[0-9]",  # they know the digits of different years' Unicode
    r"\S": r"[^\s\x1c-\x1f]",  # separators are white space to Python
}
_EITHER = {
    r"\w": r"[\w\p{No}]",
    r"\W": r"[^\p{L}\p{Nl}0-9_]",
    r"\D": "[^0-9]",
    r"\s": r"[\s\x1c-\x1f]",
}


def narrowed(regex: str) -> str:
    r"""Return a regular expression that matches no more in Rust than in Python.

    >>> narrowed(r"\w\\w")
    '[\\p{L}\\p{Nl}0-9_]\\\\w'

    Args:
      regex: in Rust's notation, where a class may hold another class.
    """
    negations: list[bool] = []  # of the classes that are open

    def rewrite(part: str) -> str:
        if part.startswith("["):
            negations.append("^" in part)
        elif part == "]" and negations:
            negations.pop()
        is_excluded = sum(negations) % 2
        return (_EITHER if is_excluded else _BOTH).get(part, part)

    return "".join(rewrite(part) for part in _PARTS.findall(regex))
