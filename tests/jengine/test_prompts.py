import array
import collections
from typing import Any

import hypothesis
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from jengine.errors import PromptError, UnsupportedError
from jengine.prompts import (
    ParsedPrompt,
    TextPrompt,
    TokensPrompt,
    check_token_ids,
    parse_prompt,
    parse_prompts,
)

TEXT = ParsedPrompt("a", None)
IDS = ParsedPrompt(None, (1, 2))
BOTH = ParsedPrompt("a", (1, 2))

FORMS: list[tuple[str, Any, list[ParsedPrompt]]] = [
    ("text", "a", [TEXT]),
    ("empty text", "", [ParsedPrompt("", None)]),
    ("ids", [1, 2], [IDS]),
    ("tuple of ids", (1, 2), [IDS]),
    ("numpy ids", np.array([1, 2]), [IDS]),
    ("jax ids", jnp.array([1, 2], dtype=jnp.int32), [IDS]),
    ("list of numpy ids", [np.int64(1), np.int64(2)], [IDS]),
    ("range of ids", range(1, 3), [IDS]),
    ("deque of ids", collections.deque([1, 2]), [IDS]),
    ("array of ids", array.array("i", [1, 2]), [IDS]),
    ("numpy text", np.str_("a"), [TEXT]),
    ("dict of text", {"prompt": "a"}, [TEXT]),
    ("dict of ids", {"prompt_token_ids": [1, 2]}, [IDS]),
    ("dict of both", {"prompt": "a", "prompt_token_ids": (1, 2)}, [BOTH]),
    ("dict with Nones", {"prompt": "a", "multi_modal_data": None}, [TEXT]),
    ("salt", {"prompt": "a", "cache_salt": "s"}, [ParsedPrompt("a", None, "s")]),
    ("no prompts", [], []),
    ("texts", ["a", "a"], [TEXT, TEXT]),
    ("lists of ids", [[1, 2], [1, 2]], [IDS, IDS]),
    ("arrays of ids", [np.array([1, 2])], [IDS]),
    ("array of texts", np.array(["a", "a"]), [TEXT, TEXT]),
    ("array of objects", np.array(["a", {"prompt": "a"}]), [TEXT, TEXT]),
    ("array of lists", np.array([[1, 2], [1, 2], "a"], dtype=object)[:2], [IDS, IDS]),
    ("deque of texts", collections.deque(["a", "a"]), [TEXT, TEXT]),
    ("deque of ids in a list", [collections.deque([1, 2])], [IDS]),
    ("ranges in a tuple", (range(1, 3),), [IDS]),
    ("no prompts in a deque", collections.deque(), []),
    ("other sequence of texts", collections.UserList(["a", "a"]), [TEXT, TEXT]),
    ("ids of another sequence", {"prompt_token_ids": collections.deque([1, 2])}, [IDS]),
    ("mixed", ["a", [1, 2], {"prompt": "a"}], [TEXT, IDS, TEXT]),
    ("empty ids in a dict", {"prompt_token_ids": []}, [ParsedPrompt(None, ())]),
    ("empty ids in a list", [[]], [ParsedPrompt(None, ())]),
]


@pytest.mark.parametrize(
    ("prompts", "parsed"), [c[1:] for c in FORMS], ids=[c[0] for c in FORMS]
)
def test_accepted_forms(prompts, parsed):
    assert parse_prompts(prompts) == parsed


REFUSED: list[tuple[str, Any, str]] = [
    ("None", None, "prompt is None"),
    ("number", 3, "prompt is 3"),
    ("bytes", b"a", "prompt is b'a'"),
    ("bytearray", bytearray(b"a"), "prompt is bytearray"),
    ("bytes in a list", [b"a"], r"prompt\[0\] is b'a'"),
    ("set", {"a"}, "prompt is {'a'}; allowed: text, a list"),
    ("array of no dimension", np.array(3), r"prompt is array\(3\)"),
    ("array of rows", np.array([[1, 2]]), r"prompt\[0\] is \[1, 2\]"),
    ("array of floats in a list", [np.array([1.0])], r"prompts\[0\]\[0\] is 1.0"),
    ("None in a list", ["ok", None], r"prompts\[1\] is None"),
    ("only None in a list", [None], r"prompts\[0\] is None"),
    ("number among texts", ["ok", 3], r"prompts\[1\] is 3"),
    ("text among ids", [1, "a"], r"prompt\[1\] is 'a'"),
    ("float id", [1, 3.0], r"prompt\[1\] is 3.0"),
    ("float first", [3.0], r"prompt\[0\] is 3.0"),
    ("bool id", [True], r"prompt\[0\] is True"),
    ("text id", {"prompt_token_ids": ["3"]}, r"\['prompt_token_ids'\]\[0\] is '3'"),
    ("nested ids", {"prompt_token_ids": [[1]]}, r"\['prompt_token_ids'\]\[0\]"),
    ("nested deep", [[[1]]], r"prompts\[0\]\[0\] is \[1\]"),
    ("float array", np.array([1.0]), r"prompt\[0\] is 1.0"),
    ("ids as text", {"prompt_token_ids": "12"}, "'12'"),
    ("empty dict", {}, "prompt is {}"),
    ("dict of None", {"prompt": None}, "allowed: text"),
    ("text in a dict is a number", {"prompt": 3}, r"\['prompt'\] is 3"),
    ("unknown key", {"promt": "a"}, "Did you mean prompt"),
    ("unknown key, nothing close", {"prompt": "a", "zz": 1}, "a key of prompt is 'zz'"),
    ("empty salt", {"prompt": "a", "cache_salt": ""}, "cache_salt"),
    ("salt of wrong type", {"prompt": "a", "cache_salt": 3}, "cache_salt"),
]


@pytest.mark.parametrize(
    ("prompts", "named"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED]
)
def test_bad_02_other_forms_are_refused_by_place(prompts, named):
    with pytest.raises(PromptError, match=named):
        parse_prompts(prompts)


def test_images_are_not_built():
    with pytest.raises(UnsupportedError, match="multi_modal_data"):
        parse_prompt({"prompt": "a", "multi_modal_data": {"image": 1}})


@hypothesis.given(st.lists(st.lists(st.integers(0, 10**6)), max_size=4))
def test_ids_come_back_as_given_and_in_order(prompts):
    assert [list(p.token_ids or ()) for p in parse_prompts(prompts)] == prompts


def test_vllms_names_of_prompts():
    prompts = [TextPrompt(prompt="a"), TokensPrompt(prompt_token_ids=[1], prompt="a")]
    assert parse_prompts(prompts) == [ParsedPrompt("a", None), ParsedPrompt("a", (1,))]


def test_bad_01_empty_prompt():
    with pytest.raises(PromptError, match="at least one token"):
        check_token_ids((), 319, 64)


@pytest.mark.parametrize("bad", [320, 325, -1, 2**31])
def test_bad_02_id_that_does_not_exist_is_named(bad):
    with pytest.raises(PromptError, match=f"token id 1 of prompt is {bad};.*0 to 319"):
        check_token_ids((0, bad, 5), 319, 64)


@pytest.mark.parametrize("length", [64, 65, 500])
def test_bad_04_too_long_prompt_names_both_numbers(length):
    with pytest.raises(PromptError, match=rf"{length}.*64"):
        check_token_ids((1,) * length, 319, 64)


def test_bad_04_longest_prompt():
    check_token_ids((0, 319) + (1,) * 61, 319, 64)
