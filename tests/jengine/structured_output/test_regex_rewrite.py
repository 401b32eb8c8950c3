r"""Python's `re` is the oracle: what the narrowed classes let through, it matches."""

import re
import unicodedata

import llguidance
import pytest

from jengine.structured_output.regex_rewrite import narrowed

TOKENIZER = llguidance.LLTokenizer("byte")


def reader(regex):
    """A function that says whether a text matches."""
    grammar = llguidance.grammar_from("regex", narrowed(regex))
    matcher = llguidance.LLMatcher(TOKENIZER, grammar, log_level=0)
    assert not matcher.is_error(), matcher.get_error()

    def takes(text):
        copy = matcher.deep_copy()
        return copy.consume_tokens(list(text.encode())) and copy.is_accepting()

    return takes


@pytest.fixture(scope="module")
def characters():
    """Two of each category and class of Python's, Latin ones, and others."""
    found = {}
    for char in map(chr, range(0x20000)):
        kind = (unicodedata.category(char), char.isalnum(), char.isspace())
        if kind[0] not in ("Cs", "Cn"):
            found.setdefault(kind, []).append(char)
    picked = [chars[i] for chars in found.values() for i in (0, -1)]
    latin = map(chr, range(1, 256))
    return [*picked, *latin, *"\u0305²½Ⅷ٣é猫\U0001ccf7"]


CLASSES = [
    r"\w", r"\W", r"\s", r"\S", r"[\w.]", r"[\W\S]",
    r"[^\W_]", r"[^\w]", r"[^\s]", r"[^\S]", r"[]\w]", r"[^]\W]", r"[a\]\W]",
    r"\d", r"\D", r"[^\D]", r"[^\d]",
]  # fmt: skip


@pytest.mark.parametrize("regex", CLASSES)
def test_nothing_is_taken_that_python_refuses(regex, characters):
    taken = list(filter(reader(regex), characters))
    assert [char for char in taken if not re.fullmatch(regex, char)] == []
    assert len(taken) > 3


@pytest.mark.parametrize(
    ("regex", "text"),
    [
        (r"\w+@\w+\.com\n", "alan_7@enigma.com\n"),
        (r"\w+", "größe猫3"),
        (r"\S+ \W", "a-é! ?"),
        (r"\\w\d", "\\w5"),
        (r"[\w\-.]+", "a-b.c"),
        (r"\n\t\x41", "\n\tA"),
        (r"[^\W\d_]+", "größe"),
        (r"[^\s]+]", "a-é!]"),
    ],
)
def test_what_both_know_is_still_taken(regex, text):
    assert re.fullmatch(regex, text)
    assert reader(regex)(text)
