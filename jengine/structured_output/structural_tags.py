"""Structural tags: their two notations, and what llguidance makes of them.

A text with tags is free until a trigger; what follows is one of the tags that start
with it, whose content follows a schema. A tag alone is the whole text.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jengine.structured_output.constraint import GrammarError

_FORMS = (
    "a structural tag is {'structures': [{'begin', 'schema', 'end'}], 'triggers'}, or"
    " {'type': 'structural_tag', 'format'} whose format is one of"
    " {'type': 'json_schema', 'json_schema'},"
    " {'type': 'tag', 'begin', 'content', 'end'} and"
    " {'type': 'triggered_tags', 'triggers', 'tags'}, where a tag's content is of type"
    " json_schema and one of the triggers starts its begin"
)


class Tag(NamedTuple):
    """A part of a text.

    Attributes:
      trigger: the beginning of `begin` that leaves no other way; None for a tag that
        is the whole text.
      begin: what it starts with.
      schema: of its content.
      end: what it ends with.
    """

    trigger: str | None
    begin: str
    schema: Any
    end: str


def read_tags(asked: Mapping[str, Any]) -> list[Tag]:
    """Return the tags of either notation.

    Raises:
      GrammarError: it is neither, or asks for what is not built.
    """
    try:
        tags = _of_format(asked["format"]) if "format" in asked else _of_list(asked)
    except (KeyError, TypeError) as error:
        raise GrammarError(f"{_FORMS} ({error!r})") from error
    if not tags:
        raise GrammarError(f"{_FORMS} (found no tag)")
    return tags


def tags_lark(
    tags: Sequence[Tag],
    prepare: Callable[[Any], Mapping[str, Any]],
    special_tokens: Mapping[str, int],
) -> str:
    """Return the grammar of a text with these tags.

    Args:
      tags: at least one.
      prepare: turns a schema into one that llguidance keeps to.
      special_tokens: ids of the texts that a token stands for, which is no text. Such a
        token starts a tag as its trigger, and stands for its text in the rest.
    """
    rules = []
    for index, tag in enumerate(tags):
        schema = json.dumps(prepare(tag.schema), ensure_ascii=False)
        begin = tag.begin[len(tag.trigger or "") :]
        body = (
            f"{_spelled(begin, special_tokens)} %json {schema}"
            f" {_spelled(tag.end, special_tokens)}"
        )
        rules.append(_rule(index, tag.trigger, body, special_tokens))
    if tags[0].trigger is None:
        return "\n".join(["start: tag_0", *rules, ""])
    either = " | ".join(f"tag_{index}" for index in range(len(tags)))
    free = [f"start: ({either})* tag_end", "tag_end: TEXT", r"TEXT: /(.|\n)*/"]
    return "\n".join([*free, *rules, ""])


def _rule(
    index: int, trigger: str | None, body: str, special_tokens: Mapping[str, int]
) -> str:
    if trigger is None:
        return f"tag_{index}: {body}"
    if trigger in special_tokens:
        return f"tag_{index}: TEXT <[{special_tokens[trigger]}]> {body}"
    head = f"tag_{index}_head[lazy]: TEXT {json.dumps(trigger, ensure_ascii=False)}"
    return f"{head}\ntag_{index}: tag_{index}_head {body}"


def _spelled(text: str, special_tokens: Mapping[str, int]) -> str:
    """Return a text as symbols; a special token in it may stand for itself."""
    names = "|".join(re.escape(one) for one in special_tokens)
    symbols = []
    for part in re.split(f"({names})", text) if names else [text]:
        quoted = json.dumps(part, ensure_ascii=False)
        if part in special_tokens:
            quoted = f"(<[{special_tokens[part]}]> | {quoted})"
        if part:
            symbols.append(quoted)
    return " ".join(symbols)


def _of_list(asked: Mapping[str, Any]) -> list[Tag]:
    triggers = [_text(one) for one in asked["triggers"]]
    return [
        _tag(one, one["schema"], _trigger(one["begin"], triggers))
        for one in asked["structures"]
    ]


def _of_format(asked: Any) -> list[Tag]:
    match asked["type"]:
        case "json_schema":
            return [Tag(None, "", asked["json_schema"], "")]
        case "tag":
            return [_tag(asked, _schema(asked["content"]), None)]
        case "triggered_tags":
            for option in ("at_least_one", "stop_after_first"):
                if asked.get(option, False) is not False:
                    raise GrammarError(
                        f"{option} may only be false, not {asked[option]!r}"
                    )
            triggers = [_text(one) for one in asked["triggers"]]
            return [
                _tag(one, _schema(one["content"]), _trigger(one["begin"], triggers))
                for one in asked["tags"]
            ]
    raise GrammarError(f"{_FORMS} (found a format of type {asked['type']!r})")


def _schema(content: Any) -> Any:
    if content["type"] != "json_schema":
        raise GrammarError(f"{_FORMS} (found content of type {content['type']!r})")
    return content["json_schema"]


def _tag(asked: Any, schema: Any, trigger: str | None) -> Tag:
    return Tag(trigger, _text(asked["begin"]), schema, _text(asked["end"]))


def _trigger(begin: object, triggers: Sequence[str]) -> str:
    for one in triggers:
        if one and _text(begin).startswith(one):
            return one
    raise GrammarError(f"{_FORMS} (found no trigger for {begin!r})")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
