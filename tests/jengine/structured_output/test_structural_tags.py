import re

import pytest

from jengine.structured_output.constraint import GrammarError
from jengine.structured_output.structural_tags import Tag, read_tags, tags_lark

OF_X = {"type": "object", "properties": {"x": {"const": 1}}}
CONTENT = {"type": "json_schema", "json_schema": OF_X}
TAG = {"type": "tag", "begin": "<f>", "content": CONTENT, "end": "</f>"}
TRIGGERED = {"type": "triggered_tags", "triggers": ["[", "<"], "tags": [TAG]}


def of(form):
    return {"type": "structural_tag", "format": form}


@pytest.mark.parametrize(
    ("asked", "tag"),
    [
        (
            {
                "structures": [{"begin": "<f>", "schema": OF_X, "end": "</f>"}],
                "triggers": ["[", "<"],
            },
            Tag("<", "<f>", OF_X, "</f>"),
        ),
        (of(TRIGGERED), Tag("<", "<f>", OF_X, "</f>")),
        (of(TAG), Tag(None, "<f>", OF_X, "</f>")),
        (of(CONTENT), Tag(None, "", OF_X, "")),
    ],
    ids=["list", "triggered_tags", "tag", "json_schema"],
)
def test_both_notations(asked, tag):
    assert read_tags(asked) == [tag]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, "KeyError('triggers')"),
        ({"structures": [], "triggers": ["<"]}, "found no tag"),
        (of({"type": "any_text"}), "found a format of type 'any_text'"),
        (of(TAG | {"content": {"type": "regex"}}), "found content of type 'regex'"),
        (of(TAG | {"end": ["a", "b"]}), "['a', 'b'] is no text"),
        (of(TRIGGERED | {"triggers": ["", "{"]}), "found no trigger for '<f>'"),
        (of(7), "'int' object is not subscriptable"),
    ],
    ids=str,
)
def test_a_refusal_names_what_is_taken(asked, found):
    with pytest.raises(GrammarError, match=re.escape(found)) as raised:
        read_tags(asked)
    for form in ("'structures'", "'triggered_tags'", "'tag'", "'json_schema'"):
        assert form in str(raised.value)


def test_an_option_that_is_not_built():
    assert read_tags(of(TRIGGERED | {"at_least_one": False}))
    with pytest.raises(GrammarError, match="at_least_one may only be false, not True"):
        read_tags(of(TRIGGERED | {"at_least_one": True}))


def test_the_grammar_of_a_tag_alone():
    lark = tags_lark([Tag(None, "<a>", True, '"')], lambda schema: {"s": schema}, {})
    assert lark == 'start: tag_0\ntag_0: "<a>" %json {"s": true} "\\""\n'


def test_special_tokens_start_a_tag_and_stand_for_text():
    tags = [Tag("<a>", "<a>é", True, "</a>\n"), Tag("<", "<b", True, "")]
    lark = tags_lark(tags, lambda schema: {}, {"<a>": 7, "</a>": 8})
    assert 'tag_0: TEXT <[7]> "é" %json {} (<[8]> | "</a>") "\\n"' in lark
    assert 'tag_1_head[lazy]: TEXT "<"\ntag_1: tag_1_head "b" %json {}' in lark
    assert "start: (tag_0 | tag_1)* tag_end" in lark
