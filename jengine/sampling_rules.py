"""What each field of `SamplingParams` may hold, as tables.

The ranges and caps are vLLM's. `sampling_params` applies the tables; this module only
states them. Standard library only.
"""

import sys
import types
from collections.abc import Mapping
from typing import cast

from jengine.field_rules import (
    Rule,
    as_integer,
    boolean,
    integer,
    many,
    number,
    optional,
    text,
)
from jengine.logprobs import MOST_LISTED_IDS

MOST_COMPLETIONS = 16384  # vLLM's cap of n


def _logprobs_rule() -> Rule:
    def convert(value: object) -> object:
        if isinstance(value, bool):
            return 1 if value else None
        return optional(integer(-1)).convert(value)

    return Rule("None, an integer of at least 0, or -1 for all", convert)


def _stop_rule() -> Rule:
    strings = many(text())

    def convert(value: object) -> object:
        return strings.convert([value] if isinstance(value, str) else value)

    return Rule("a non-empty string or a list of them", convert)


def _stop_token_ids_rule() -> Rule:
    ids = many(integer(0))

    def convert(value: object) -> object:
        return tuple(dict.fromkeys(cast("tuple[int, ...]", ids.convert(value))))

    return Rule(ids.allowed, convert)


def _logit_bias_rule() -> Rule:
    bias = number(-sys.float_info.max, None)

    def convert(value: object) -> object:
        if not isinstance(value, Mapping):
            raise TypeError
        items = cast("Mapping[object, object]", value).items()
        kept = {integer(0).convert(key): bias.convert(b) for key, b in items}
        # An empty one asks for nothing.
        return types.MappingProxyType(kept) if kept else None

    return Rule("a dict from token ids to finite numbers", convert)


def _truncation_rule() -> Rule:
    count = integer(1)

    def convert(value: object) -> object:
        kept = as_integer(value)
        return kept if kept == -1 else count.convert(kept)

    return Rule("an integer of at least 1, or -1 for what fits", convert)


def _extra_args_rule() -> Rule:
    def convert(value: object) -> object:
        return dict(cast("Mapping[str, object]", value)) or None

    return Rule("a dict", convert)


def _seed_rule() -> Rule:
    bits = integer(-(2**63), 2**64 - 1)

    def convert(value: object) -> object:
        kept = as_integer(value)
        return None if kept == -1 else bits.convert(kept)

    return Rule("-1 or an integer of 64 bits", convert)


SAMPLING_RULES: Mapping[str, Rule] = {
    "n": integer(1, MOST_COMPLETIONS),
    "presence_penalty": number(-2, 2),
    "frequency_penalty": number(-2, 2),
    "repetition_penalty": number(0, None, above_low=True),
    "temperature": number(0, 2),
    "top_p": number(0, 1, above_low=True),
    "top_k": integer(-1),
    "min_p": number(0, 1),
    "seed": optional(_seed_rule()),
    "stop": _stop_rule(),
    "stop_token_ids": _stop_token_ids_rule(),
    "ignore_eos": boolean(),
    "max_tokens": optional(integer(1)),
    "min_tokens": integer(0),
    "logprobs": _logprobs_rule(),
    "prompt_logprobs": _logprobs_rule(),
    "logprob_token_ids": optional(many(integer(0), most=MOST_LISTED_IDS)),
    "flat_logprobs": boolean(),
    "detokenize": boolean(),
    "skip_special_tokens": boolean(),
    "spaces_between_special_tokens": boolean(),
    "include_stop_str_in_output": boolean(),
    "stream_interval": optional(integer(1)),
    "logit_bias": optional(_logit_bias_rule()),
    "allowed_token_ids": optional(many(integer(0), least=1)),
    "bad_words": many(text()),
    "truncate_prompt_tokens": optional(_truncation_rule()),
    "skip_reading_prefix_cache": optional(boolean()),
    "extra_args": optional(_extra_args_rule()),
}

GENERATION_CONFIG_FIELDS: Mapping[str, str] = {
    "repetition_penalty": "repetition_penalty",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "max_new_tokens": "max_tokens",
}
