"""Find the form in which a chat template takes each role's contents, by rendering.

A template is a program: whether it takes a message apart or writes it as it is, for one
role or for all, shows when it runs. So each text of the conversation is replaced by a
mark, and the forms in which the most marks come out are those that it takes.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any

from jengine.text.messages import Message, join_text, split_text

Render = Callable[[list[Message]], str]
Form = Callable[[list[Message]], list[Message]]

_MARK = "8c1f0e"  # text that no template writes by itself
_PRINTED = re.compile(rf"""["']text["']: *["']{_MARK}""")  # a part, merely printed

# Scores of renderings that are none.
_PRINTS = -1
_REFUSES = -2


def fit_contents(messages: list[Message], render: Render) -> list[Message]:
    """Give each role's contents the form that shows most of the conversation.

    As given, as one string, as a list of the parts or of one; in doubt as given.

    Args:
      messages: checked ones, see `normalise_messages`.
      render: renders messages with the template, its variables and tools.
    """
    # Without text, "" suits every template: it holds nothing to print or to loop over.
    messages = [m if _texts(m["content"]) else m | {"content": ""} for m in messages]
    marked = _mark(messages)
    num_marks = sum(1 for message in marked for _ in _texts(message["content"]))
    roles = list(dict.fromkeys(message["role"] for message in messages))
    best: dict[str, Form] = dict.fromkeys(roles, _as_given)
    most = _score(_shape(marked, best), render)
    for change in _changes(roles):
        if most == num_marks:
            break
        forms = best | change
        score = _score(_shape(marked, forms), render)
        if score > most:
            best, most = forms, score
    return _shape(messages, best)


def prints_parts(messages: list[Message], render: Render) -> bool:
    """Whether the template prints a list of parts as Python does."""
    return _score(_mark(messages), render) == _PRINTS


def _changes(roles: list[str]) -> Iterator[dict[str, Form]]:
    """One form for all, then for each role by itself."""
    for form in (join_text, split_text, _as_one_part):
        yield dict.fromkeys(roles, form)
    for role in roles:
        for form in (_as_given, join_text, split_text, _as_one_part):
            yield {role: form}


def _as_given(messages: list[Message]) -> list[Message]:
    return messages


def _as_one_part(messages: list[Message]) -> list[Message]:
    return split_text(join_text(messages))


def _shape(messages: list[Message], forms: Mapping[str, Form]) -> list[Message]:
    return [forms[message["role"]]([message])[0] for message in messages]


def _score(messages: list[Message], render: Render) -> int:
    """Count the marks that come out."""
    try:
        text = render(messages)
    except Exception:  # a template is a program, anything can happen in it
        return _REFUSES
    if _PRINTED.search(text):
        return _PRINTS
    return sum(
        mark in text for message in messages for mark in _marks(message["content"])
    )


def _texts(content: Any) -> list[str]:
    parts = content if isinstance(content, list) else [{"text": content}]
    return [part["text"] for part in parts if part["text"]]


def _marks(content: Any) -> list[str]:
    """The marks of a content, also of one that was joined."""
    return [mark for text in _texts(content) for mark in text.split("\n")]


def _mark(messages: list[Message]) -> list[Message]:
    """Replace each text by a mark of its own; what is empty stays empty."""
    numbers = count()

    def mark(text: str) -> str:
        return f"{_MARK}x{next(numbers)}x" if text else text

    def marked(content: Any) -> Any:
        if isinstance(content, str):
            return mark(content)
        return [part | {"text": mark(part["text"])} for part in content]

    return [message | {"content": marked(message["content"])} for message in messages]
