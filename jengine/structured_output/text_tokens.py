"""Which added tokens are text to llguidance.

It takes every added token in angle brackets for a name, which no text contains. Models
with tools have some that are text all the same, such as `<tool_call>`: decoding shows
them, and a request may ask for a text that has them.
"""

import json
import re
from typing import Any, NamedTuple

# As a token's text and as its entry in the vocabulary of a BPE it reads the same.
_SAME_IN_VOCABULARY = re.compile("<[!-~]*>")


class TextTokens(NamedTuple):
    """A tokenizer whose added tokens are text unless they are special.

    Attributes:
      tokenizer: as `tokenizer.json` has it.
      moved: texts of the tokens that are no names any more.
    """

    tokenizer: str
    moved: frozenset[str]


def with_text_tokens(tokenizer: str) -> TextTokens:
    """Move added tokens in angle brackets to the vocabulary, but for special ones.

    Args:
      tokenizer: as `tokenizer.json` has it. Only the vocabulary of a BPE takes further
        ids; others are left as they are.
    """
    content: dict[str, Any] = json.loads(tokenizer)
    added, model = content.get("added_tokens") or [], content.get("model") or {}
    moved = frozenset(
        one["content"]
        for one in added
        if not one["special"] and _SAME_IN_VOCABULARY.fullmatch(one["content"])
    )
    if not moved or model.get("type") != "BPE":
        return TextTokens(tokenizer, frozenset())
    # All of them, for those that the vocabulary lacks are numbered anew.
    model["vocab"] |= {one["content"]: one["id"] for one in added}
    content["added_tokens"] = [one for one in added if one["content"] not in moved]
    return TextTokens(json.dumps(content, ensure_ascii=False), moved)
