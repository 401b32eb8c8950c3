"""Messages are checked and brought into one form, without touching the caller's."""

import copy
import types
from typing import Any

import pytest

from jengine.errors import ChatTemplateError
from jengine.text.messages import join_text, normalise_messages, split_text


def test_strings_pass() -> None:
    messages = [{"role": "user", "content": "hi", "name": "me"}]
    assert normalise_messages(messages) == messages
    assert normalise_messages(tuple(messages)) == messages


def test_copies_are_returned() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": ["hi"]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"function": {"name": "f", "arguments": '{"a": 1}'}}],
        },
    ]
    before = copy.deepcopy(messages)
    normal = normalise_messages(messages)
    assert messages == before
    assert normal[0]["content"] == [{"type": "text", "text": "hi"}]
    assert normal[1]["content"] == ""
    assert normal[1]["tool_calls"][0]["function"] == {
        "name": "f",
        "arguments": {"a": 1},
    }


def test_any_mapping_will_do() -> None:
    message = types.MappingProxyType({"role": "user", "content": "hi"})
    assert normalise_messages([message]) == [{"role": "user", "content": "hi"}]


def test_content_may_be_absent_beside_tool_calls() -> None:
    call = {"function": {"name": "f"}}
    (message,) = normalise_messages([{"role": "assistant", "tool_calls": [call]}])
    assert message["content"] == ""
    assert message["tool_calls"][0]["function"]["arguments"] == {}


@pytest.mark.parametrize("calls", [None, []])
def test_no_tool_calls_are_no_entry(calls: object) -> None:
    # Llama 3's template asks `'tool_calls' in message`, then for exactly one.
    message = {"role": "assistant", "content": "x", "tool_calls": calls}
    assert normalise_messages([message]) == [{"role": "assistant", "content": "x"}]
    assert message["tool_calls"] is calls


def test_the_error_names_the_place() -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "user", "content": [{}]}]
    with pytest.raises(ChatTemplateError, match=r"messages\[1\]\['content'\]\[0\]"):
        normalise_messages(messages)


def test_join_and_split() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert join_text([{"role": "x", "content": parts}]) == [
        {"role": "x", "content": "a\nb"}
    ]
    assert split_text([{"role": "x", "content": "a"}]) == [
        {"role": "x", "content": parts[:1]}
    ]
    mixed = [{"role": "x", "content": "s"}, {"role": "x", "content": parts}]
    assert join_text(mixed)[0] is not mixed[0]
    assert join_text(mixed)[0] == mixed[0]
    assert split_text(mixed)[1] == mixed[1]
