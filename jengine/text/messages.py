"""Check the messages of a conversation and bring them into the form templates expect.

Clients of OpenAI's interface send tool-call arguments as JSON text, contents that are
null and contents that are lists of parts; chat templates want mappings and strings.
Nothing that the caller passed is changed.
"""

import json
from collections.abc import Mapping
from typing import Any

from jengine.errors import ChatTemplateError

Message = dict[str, Any]


def normalise_messages(messages: object) -> list[Message]:
    """Return checked copies of the messages.

    Contents are strings or lists of text parts; null is "". Arguments of tool calls
    are mappings.

    Raises:
      ChatTemplateError: naming the message and what is wrong with it.
    """
    if not isinstance(messages, list | tuple):
        raise ChatTemplateError(
            f"messages must be a list of messages, not {type(messages).__name__}"
        )
    if not messages:
        raise ChatTemplateError("messages is empty: a conversation needs one at least")
    return [_normalise(message, f"messages[{i}]") for i, message in enumerate(messages)]


def join_text(messages: list[Message]) -> list[Message]:
    """Replace each list of text parts by one string, the parts joined by newlines."""

    def joined(content: Any) -> Any:
        if not isinstance(content, list):
            return content
        return "\n".join(part["text"] for part in content)

    return [message | {"content": joined(message["content"])} for message in messages]


def split_text(messages: list[Message]) -> list[Message]:
    """Replace each string by a list of one text part."""

    def split(content: Any) -> Any:
        if not isinstance(content, str):
            return content
        return [{"type": "text", "text": content}]

    return [message | {"content": split(message["content"])} for message in messages]


def _normalise(message: object, where: str) -> Message:
    if not isinstance(message, Mapping):
        raise ChatTemplateError(
            f"{where} must be a mapping with 'role' and 'content', not "
            f"{type(message).__name__}"
        )
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise ChatTemplateError(f"{where}['role'] must be a text, found {role!r}")
    if "content" not in message and not message.get("tool_calls"):
        raise ChatTemplateError(f"{where} has no 'content'")
    normal = dict(message)
    normal["content"] = _content(message.get("content"), f"{where}['content']")
    calls = normal.pop("tool_calls", None)
    if calls is not None and (made := _tool_calls(calls, where)):
        normal["tool_calls"] = made  # templates ask whether there are any by the key
    return normal


def _content(content: object, where: str) -> str | list[Message]:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        raise ChatTemplateError(
            f"{where} must be a text or a list of parts, not {type(content).__name__}"
        )
    return [_part(part, f"{where}[{i}]") for i, part in enumerate(content)]


def _part(part: object, where: str) -> Message:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    if not isinstance(part, Mapping) or kind != "text":
        raise ChatTemplateError(
            f"{where} is of type {kind!r}: only text is supported, as "
            "{'type': 'text', 'text': ...}"
        )
    if not isinstance(part.get("text"), str):
        raise ChatTemplateError(
            f"{where}['text'] must be a text, found {part.get('text')!r}"
        )
    return dict(part)


def _tool_calls(calls: object, where: str) -> list[Message]:
    if not isinstance(calls, list | tuple):
        raise ChatTemplateError(
            f"{where}['tool_calls'] must be a list, not {type(calls).__name__}"
        )
    return [
        _tool_call(call, f"{where}['tool_calls'][{i}]") for i, call in enumerate(calls)
    ]


def _tool_call(call: object, where: str) -> Message:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        raise ChatTemplateError(f"{where} must be a mapping with a 'function'")
    arguments = _arguments(function.get("arguments"), f"{where} arguments")
    return {**call, "function": {**function, "arguments": arguments}}


def _arguments(arguments: object, where: str) -> Message:
    """Return arguments as a mapping; no arguments are an empty one."""
    if arguments is None or arguments == "":
        return {}
    parsed = arguments
    if isinstance(arguments, str):
        try:
            parsed = json.loads(arguments)
        except json.JSONDecodeError as error:
            raise ChatTemplateError(f"{where} are not valid JSON: {error}") from error
    if not isinstance(parsed, Mapping):
        raise ChatTemplateError(f"{where} must be a JSON object, found {arguments!r}")
    return dict(parsed)
