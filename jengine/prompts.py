"""The forms in which a prompt may be given, and the checks that a prompt must pass.

Parsing needs no tokenizer and no model. `check_token_ids` is for after tokenising,
when the ids and the limits of the model are known. Standard library only.
"""

import dataclasses
import difflib
import numbers
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict, cast

from jengine.errors import InvalidValueError, PromptError, UnsupportedError
from jengine.field_rules import as_integer

_FORMS = "text, a list of token ids, or a dict with prompt or prompt_token_ids"
_KEYS = ("prompt", "prompt_token_ids", "cache_salt")
_UNBUILT_KEYS = frozenset(
    {
        "encoder_prompt",
        "decoder_prompt",
        "multi_modal_data",
        "multi_modal_uuids",
        "mm_processor_kwargs",
        "prompt_embeds",
    }
)


class TextPrompt(TypedDict):
    """A prompt as text, vLLM's name for such a dict.

    >>> TextPrompt(prompt="Once upon a time")
    {'prompt': 'Once upon a time'}
    """

    prompt: str
    cache_salt: NotRequired[str]


class TokensPrompt(TypedDict):
    """A prompt as token ids, vLLM's name for such a dict; text beside is only shown."""

    prompt_token_ids: Sequence[int]
    prompt: NotRequired[str]
    cache_salt: NotRequired[str]


@dataclasses.dataclass(frozen=True, slots=True)
class ParsedPrompt:
    """One prompt; at least one of `text` and `token_ids` is there, and the ids win.

    Attributes:
      text: the prompt as text; may be empty, for a tokenizer may add a first token.
      token_ids: the prompt as ids; None where `text` is still to be tokenised.
      cache_salt: only prompts of the same salt share cached blocks.
      add_special_tokens: whether the tokenizer adds its own, such as a BOS, to text.
    """

    text: str | None
    token_ids: tuple[int, ...] | None
    cache_salt: str | None = None
    add_special_tokens: bool = True


def tokenize_as(prompt: ParsedPrompt, tokenization_kwargs: object) -> ParsedPrompt:
    """Return a prompt that is tokenised as vLLM's `tokenization_kwargs` say.

    Args:
      prompt: the prompt.
      tokenization_kwargs: None, or a dict; its one key is `add_special_tokens`.

    Raises:
      InvalidValueError: it holds something else.
    """
    if tokenization_kwargs is None:
        return prompt
    field = "tokenization_kwargs"
    if not isinstance(tokenization_kwargs, Mapping):
        raise InvalidValueError(field, tokenization_kwargs, "a dict or None")
    given = dict(cast("Mapping[object, object]", tokenization_kwargs))
    adds = given.pop("add_special_tokens", True)
    if given or not isinstance(adds, bool):
        allowed = "{'add_special_tokens': True or False}"
        raise InvalidValueError(
            field,
            tokenization_kwargs,
            allowed,
            "To shorten prompts use SamplingParams(truncate_prompt_tokens=...).",
        )
    return dataclasses.replace(prompt, add_special_tokens=adds)


def parse_prompts(prompts: object) -> list[ParsedPrompt]:
    """Parse one prompt or a list of prompts, in order.

    >>> [parsed.text for parsed in parse_prompts(["one", {"prompt": "two"}])]
    ['one', 'two']
    >>> parse_prompts([1, 2])[0].token_ids
    (1, 2)

    Raises:
      PromptError: a prompt has none of the accepted forms.
      UnsupportedError: a prompt asks for something that is not built yet.
    """
    items = _as_list(prompts)
    if not _is_list_of_prompts(prompts, items):
        return [parse_prompt(prompts)]
    return [parse_prompt(item, f"prompts[{i}]") for i, item in enumerate(items or ())]


def parse_prompt(prompt: object, field: str = "prompt") -> ParsedPrompt:
    """Parse one prompt; `field` is its name in errors.

    Raises:
      PromptError: the prompt has none of the accepted forms.
      UnsupportedError: the prompt asks for something that is not built yet.
    """
    if isinstance(prompt, str):
        return ParsedPrompt(prompt, None)
    if isinstance(prompt, Mapping):
        return _parse_dict(cast("Mapping[str, object]", prompt), field)
    return ParsedPrompt(None, _parse_ids(prompt, field))


def check_token_ids(
    token_ids: Sequence[int],
    max_id: int,
    max_model_len: int,
    *,
    field: str = "prompt",
) -> None:
    """Check a tokenised prompt against the limits of the model.

    Args:
      token_ids: the ids of the prompt.
      max_id: largest id that the model or its tokenizer knows.
      max_model_len: most tokens of prompt and output together.
      field: name of the prompt in errors.

    Raises:
      PromptError: there is no token, too many, or one that does not exist.
    """
    if not token_ids:
        raise PromptError(field, token_ids, "a prompt of at least one token")
    if len(token_ids) >= max_model_len:
        raise PromptError(
            f"the length of {field}",
            len(token_ids),
            f"at most {max_model_len - 1} tokens, so that max_model_len ="
            f" {max_model_len} leaves room for one more",
        )
    if min(token_ids) < 0 or max(token_ids) > max_id:
        bad = next(i for i, t in enumerate(token_ids) if not 0 <= t <= max_id)
        raise PromptError(
            f"token id {bad} of {field}", token_ids[bad], f"0 to {max_id}"
        )


def _is_list_of_prompts(prompts: object, items: list[object] | None) -> bool:
    # An array of several rows could be lists of ids or of anything: it is refused.
    if items is None or getattr(prompts, "ndim", 1) != 1:
        return False
    if not items:  # of an array or a range they would be ids
        return not (hasattr(prompts, "tolist") or isinstance(prompts, range))
    return items[0] is None or _is_prompt(items[0])


def _is_prompt(item: object) -> bool:
    if isinstance(item, numbers.Number):  # numpy's, too, have `tolist`
        return False
    return isinstance(item, str | Mapping) or _as_list(item) is not None


def _as_list(value: object) -> list[object] | None:
    """Return the items of a sequence or an array; None for anything else."""
    if isinstance(value, Mapping | str):
        return None
    if hasattr(value, "tolist"):  # an array
        value = cast("Any", value).tolist()
    if isinstance(value, str | bytes | bytearray):
        return None
    if not isinstance(value, Sequence):
        return None
    return list(cast("Sequence[object]", value))


def _parse_dict(prompt: Mapping[str, object], field: str) -> ParsedPrompt:
    given = {key: value for key, value in prompt.items() if value is not None}
    for key in given:
        _check_key(key, field)
    text, ids = given.get("prompt"), given.get("prompt_token_ids")
    if text is None and ids is None:
        raise PromptError(field, dict(prompt), _FORMS)
    salt = given.get("cache_salt")
    if salt is not None and (not isinstance(salt, str) or not salt):
        raise PromptError(f"{field}['cache_salt']", salt, "a non-empty string")
    if text is not None and not isinstance(text, str):
        raise PromptError(f"{field}['prompt']", text, "text")
    parsed = None if ids is None else _parse_ids(ids, f"{field}['prompt_token_ids']")
    return ParsedPrompt(text, parsed, salt)


def _check_key(key: str, field: str) -> None:
    if key in _UNBUILT_KEYS:
        raise UnsupportedError(f"{field}: the key {key!r} is not supported yet")
    if key not in _KEYS:
        close = difflib.get_close_matches(str(key), _KEYS, n=1)
        hint = f"Did you mean {close[0]}?" if close else None
        raise PromptError(f"a key of {field}", key, ", ".join(_KEYS), hint)


def _parse_ids(value: object, field: str) -> tuple[int, ...]:
    ids = _as_list(value)
    if ids is None:
        raise PromptError(field, value, _FORMS)
    for index, token_id in enumerate(ids):
        try:
            as_integer(token_id)
        except TypeError:
            allowed = "an integer"
            raise PromptError(f"{field}[{index}]", token_id, allowed) from None
    return tuple(as_integer(token_id) for token_id in ids)
