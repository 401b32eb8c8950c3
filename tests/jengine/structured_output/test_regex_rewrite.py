r"""Python's `re` is the oracle: what the narrowed classes let through, it matches."""

import json
import re
import unicodedata

import hypothesis
import hypothesis.strategies as st
import llguidance
import pytest

from jengine.structured_output.constraint import GrammarError
from jengine.structured_output.regex_rewrite import narrowed, narrowed_pattern

# Python may read them differently one day.
pytestmark = pytest.mark.filterwarnings("ignore:Possible:FutureWarning")

TOKENIZER = llguidance.LLTokenizer("byte")


def reader(regex):
    """A function that says whether a text matches."""
    return read_by(llguidance.grammar_from("regex", narrowed(regex)))


def json_reader(pattern):
    """A function that says whether the JSON of a string matches."""
    schema = {"type": "string", "pattern": narrowed_pattern(pattern)}
    return read_by(llguidance.LLMatcher.grammar_from_json_schema(schema))


def read_by(grammar):
    matcher = llguidance.LLMatcher(TOKENIZER, grammar, log_level=0)
    if matcher.is_error():
        raise ValueError(matcher.get_error())

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


ORDINARY = [
    ("[[a]", "[", "b"),
    ("[^[a]", "b", "["),
    ("[a[b]c]", "[c]", "bc"),
    ("[^a&&b]", "c", "&"),
    ("[a&&b]", "&", "c"),
    ("[^a~~b]", "c", "~"),
    ("[!--]", "+", "a"),
    ("[--a]", "A", "b"),
    ("[[:alpha:]]", ":]", "b"),
    ("a{,3}b", "aab", "aaaab"),
    ("a{,}b", "aaaab", "{,}"),
    (r"\<a\>", "<a>", "a"),
    (r"[\<]", "<", "a"),
    (r"\Aab\Z", "ab", "a"),
    (r"\Aa|b\Z", "a", "ab"),
    (r"\0[\0]\101\07", "\0\0A\7", "a"),
    (r"[\b]", "\b", "b"),
    ("x(?#[c)y", "xy", "x"),
    ("a(?#c)*", "aa", "(?#c)"),
    (r"[(?#)]\(?#", "##", "a"),
    ("(?x)[ #a]", "#", "b"),
    ("[]a]", "]", "b"),
]


@pytest.mark.parametrize(("regex", "text", "other"), ORDINARY)
def test_what_is_ordinary_to_python_is_taken(regex, text, other):
    assert re.fullmatch(regex, text)
    assert reader(regex)(text)
    assert not re.fullmatch(regex, other)
    assert not reader(regex)(other)


@pytest.mark.parametrize("regex", ["\\", "ab\\", "a\\\\\\", "a|\\"])
@pytest.mark.parametrize("rewrite", [narrowed, narrowed_pattern])
def test_a_backslash_at_the_end_is_refused(rewrite, regex):
    with pytest.raises(GrammarError, match="ends with a single backslash"):
        rewrite(regex)


@pytest.mark.parametrize("regex", ["[", "[]", "[^]", "[^]a", "[]a", r"[\]", r"[A-\d]"])
def test_what_python_refuses_is_refused(regex):
    with pytest.raises(re.error):
        re.compile(regex)
    grammar = llguidance.grammar_from("regex", narrowed(regex))
    assert llguidance.LLMatcher(TOKENIZER, grammar, log_level=0).is_error()


def test_what_has_two_readings_stays_in_a_pattern():
    for pattern in (r"\Aab\Z", "a{,3}", "x(?#c)y"):
        assert narrowed_pattern(pattern) == pattern


SINGLE = [*'ab&-~[^#. "\\\n\f\0é', "&&", "--", "~~", "[:alpha:"]
IN_CLASS = ["a", "b", "&", "-", "~", "[", "^", "#", " ", '"', "é", "a-b", "+-[", "&&"]
IN_CLASS += ["--", "~~", r"\]", r"\\", r"\w", r"\W", r"\s", r"\S", r"\d", r"\D"]
IN_CLASS += [r"\n", r"\0", r"\x00-!", r"\x00-\x1f", r"\-", r"\u00e9", r"\b", r"\<"]
OUTSIDE = ["a", "b", "&", "-", "~", '"', ".", "é", r"\\", r"\w", r"\W", r"\S", r"\D"]
OUTSIDE += [r"\[", r"\0", r"\n", "a|", "(?:ab)?", "[^a]*", '[^"]|', r"\<", "{,2}"]

classes = st.builds(
    lambda start, items: f"[{start}{''.join(items)}]",
    st.sampled_from(["", "^", "]", "^]"]),
    st.lists(st.sampled_from(IN_CLASS), min_size=1, max_size=4),
)
regexes = st.lists(classes | st.sampled_from(OUTSIDE), min_size=1, max_size=4)
texts = st.lists(st.sampled_from(SINGLE), max_size=4).map("".join)


def both(regex, read):
    """Python's and our reading of an expression that neither refuses."""
    try:
        return re.compile(regex), read(regex)
    except (re.error, ValueError):
        hypothesis.reject()


@hypothesis.given(regexes.map("".join), st.lists(texts, min_size=5, max_size=20))
@hypothesis.settings(max_examples=60, deadline=None)
def test_random_expressions_take_no_more_than_python(regex, tried):
    python, takes = both(regex, reader)
    for text in [*tried, *SINGLE, ""]:
        if takes(text):
            assert python.fullmatch(text), text


def spellings(text):
    """JSON of a string with as few and as many escapes as possible, and wrong ones."""
    coded = "".join(f"\\u{ord(char):04x}" for char in text)
    return {json.dumps(text, ensure_ascii=False), json.dumps(text), f'"{coded}"'}


@hypothesis.given(regexes.map("".join), st.lists(texts, min_size=5, max_size=20))
@hypothesis.settings(max_examples=60, deadline=None)
def test_random_patterns_take_no_more_than_python(middle, tried):
    pattern = f"^(?:{middle})$"
    python, takes = both(pattern, json_reader)
    for text in [*tried, *SINGLE, ""]:
        for said in spellings(text):
            if takes(said):
                assert python.search(text), said


QUOTES = [
    '[^"]', r'[^"\\]', '[^"/]', r"[^\\]", r'[^"\n]', r'[^"\x00]', r"[\x00-!#-\uffff]",
    "[^!-~]", r"[\x00-\x1f]", r"[\0-\x1fa]", '(?:[^"]|\0)', '(?:[^"]|\\s)',
    r"\W", r"\S", r"\D", r"[^\s]", r"[^\w]", r"[\W\S]", ".", r"[\s\S]", r"\w", r"[^\W]",
    r"\s", r"[^\S]", r"[^\D]", r"[^\d]",
]  # fmt: skip


@pytest.mark.parametrize("middle", QUOTES)
def test_json_strings_match_their_pattern(middle, characters):
    pattern = f"^{middle}$"
    takes = json_reader(pattern)
    tried = [*characters[::4], *'"\\/\0\n\x1c\x1f\x7fé']
    taken = {c: [t for t in spellings(c) if takes(t)] for c in tried}
    assert {c: t for c, t in taken.items() if t and not re.search(pattern, c)} == {}
    assert any(taken.values())


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ('^[^"]*$', "a\\b/\n\x01é猫"),
        (r'^[^"\\]+$', "a b/c"),
        (r"^\S+@\S+$", 'alan"@é'),
        (r"^[[a]{2}&&$", "[a&&"),
        (r"^[\w.-]+$", "a-b.c"),
    ],
)
def test_ordinary_json_strings_are_still_taken(pattern, text):
    assert re.search(pattern, text)
    assert json_reader(pattern)(json.dumps(text, ensure_ascii=False))
