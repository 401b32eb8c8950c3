"""Requests of benchmarks: random ids, shared prefixes, conversations, recorded traces.

Pure functions of their arguments and a seed. Names and defaults are vLLM's where it
has such a data set.
"""

import json
import os
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from jengine.bench.bench_request import BenchRequest
from jengine.bench.trace import TraceEntry
from jengine.errors import InvalidValueError

_LEAST_TOKENS = 4  # of prompt and output of a conversation, as in vLLM
_MOST_PROMPT, _MOST_TOTAL = 1024, 2048


def random_requests(
    count: int,
    *,
    input_len: int,
    output_len: int,
    vocab_size: int,
    range_ratio: float = 0.0,
    prefix_len: int = 0,
    seed: int = 0,
) -> list[BenchRequest]:
    """Return prompts of random ids, the same prefix before each.

    Args:
      count: number of requests.
      input_len: tokens of a prompt after its prefix.
      output_len: tokens to generate.
      vocab_size: ids are drawn below it.
      range_ratio: lengths are drawn evenly between 1 - this and 1 + this times theirs.
      prefix_len: tokens that all prompts begin with.
      seed: other seeds draw other requests.

    Raises:
      InvalidValueError: a ratio outside of 0 to 1.
    """
    if not 0 <= range_ratio < 1:
        raise InvalidValueError("range_ratio", range_ratio, "from 0 to below 1")
    rng = np.random.default_rng(seed)
    prefix = rng.integers(0, vocab_size, prefix_len).tolist()
    inputs = _lengths(rng, input_len, range_ratio, count)
    outputs = _lengths(rng, output_len, range_ratio, count)
    return [
        _of_ids([*prefix, *rng.integers(0, vocab_size, one).tolist()], output)
        for one, output in zip(inputs, outputs, strict=True)
    ]


def shared_prefix_requests(
    count: int,
    *,
    num_prefixes: int = 10,
    prefix_len: int = 256,
    suffix_len: int = 256,
    output_len: int = 128,
    vocab_size: int,
    seed: int = 0,
) -> list[BenchRequest]:
    """Return prompts that begin with one of a few prefixes, in random order.

    Args:
      count: number of requests; each prefix gets an equal share.
      num_prefixes: different beginnings.
      prefix_len: tokens of a beginning.
      suffix_len: tokens of each request's own.
      output_len: tokens to generate.
      vocab_size: ids are drawn below it.
      seed: other seeds draw other requests.

    Raises:
      InvalidValueError: fewer requests than prefixes.
    """
    if not 1 <= num_prefixes <= count:
        raise InvalidValueError("num_prefixes", num_prefixes, f"from 1 to {count}")
    rng = np.random.default_rng(seed)
    prefixes = rng.integers(0, vocab_size, (num_prefixes, prefix_len)).tolist()
    suffixes = rng.integers(0, vocab_size, (count, suffix_len)).tolist()
    order = rng.permutation(count)
    return [
        _of_ids([*prefixes[i % num_prefixes], *suffixes[i]], output_len) for i in order
    ]


def sharegpt_requests(
    path: str | os.PathLike[str],
    count: int,
    *,
    encode: Callable[[str], Sequence[int]],
    output_len: int | None = None,
    seed: int = 0,
) -> list[BenchRequest]:
    """Return the first turns of conversations in ShareGPT's JSON format.

    Conversations that are very short or long are left out, by vLLM's limits.

    Args:
      path: a list of objects with `conversations`, each turn with a `value`.
      count: most requests; fewer if the file has fewer.
      encode: from text to ids.
      output_len: tokens to generate; None takes the length of the recorded answer.
      seed: other seeds take other conversations.

    Raises:
      InvalidValueError: the file has no conversation that can be used.
    """
    turns = _first_turns(path)
    order = np.random.default_rng(seed).permutation(len(turns))
    found: list[BenchRequest] = []
    for index in order:
        if len(found) == count:
            break
        asked, answered = turns[index]
        ids = encode(asked)
        output = len(encode(answered)) if output_len is None else output_len
        if _is_usable(len(ids), output, is_recorded=output_len is None):
            found.append(
                BenchRequest(
                    token_ids=tuple(ids),
                    text=asked,
                    prompt_tokens=len(ids),
                    output_tokens=output,
                )
            )
    if not found:
        raise InvalidValueError(
            "dataset_path",
            str(path),
            f"a file of conversations with {_LEAST_TOKENS} to {_MOST_PROMPT} prompt"
            f" tokens, and at most {_MOST_TOTAL} with the output",
        )
    return found


def trace_requests(
    entries: Iterable[TraceEntry], *, vocab_size: int, seed: int = 0
) -> list[BenchRequest]:
    """Return requests of recorded lengths and times, their prompts random ids."""
    rng = np.random.default_rng(seed)
    return [
        BenchRequest(
            token_ids=tuple(rng.integers(0, vocab_size, one.prompt_tokens).tolist()),
            prompt_tokens=one.prompt_tokens,
            output_tokens=one.output_tokens,
            arrival_s=one.arrival_s,
        )
        for one in entries
    ]


def unlike(requests: Iterable[BenchRequest], *, vocab_size: int) -> list[BenchRequest]:
    """Return requests of the same lengths and shared beginnings, of other ids.

    For warming up: no prefix cache knows anything of the given requests afterwards.

    Args:
      requests: of known ids.
      vocab_size: ids stay below it.
    """
    shift = vocab_size // 2
    return [
        BenchRequest(
            token_ids=tuple((i + shift) % vocab_size for i in one.token_ids),
            prompt_tokens=one.prompt_tokens,
            output_tokens=one.output_tokens,
        )
        for one in requests
    ]


def _first_turns(path: str | os.PathLike[str]) -> list[tuple[str, str]]:
    """Return what was asked and answered first in each conversation of a file.

    Raises:
      InvalidValueError: the file is no JSON, or has another form.
    """
    try:
        listed = json.loads(pathlib.Path(path).read_text("utf-8"))
        all_turns = [one["conversations"] for one in listed]
        return [(_text(t[0]), _text(t[1])) for t in all_turns if len(t) >= 2]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidValueError(
            "dataset_path",
            str(path),
            "a JSON list of objects with `conversations`, each turn with a `value`",
            f"{type(error).__name__}: {error}",
        ) from error


def _text(turn: Any) -> str:
    value = turn["value"]
    if not isinstance(value, str):
        raise TypeError(f"a value is {value!r}")
    return value


def _is_usable(prompt: int, output: int, *, is_recorded: bool) -> bool:
    """Say whether lengths lie within vLLM's limits; a given output may be short."""
    return (
        prompt >= _LEAST_TOKENS
        and (output >= _LEAST_TOKENS or not is_recorded)
        and prompt <= _MOST_PROMPT
        and prompt + output <= _MOST_TOTAL
    )


def _lengths(
    rng: np.random.Generator, middle: int, ratio: float, count: int
) -> list[int]:
    low, high = int(middle * (1 - ratio)), int(np.ceil(middle * (1 + ratio)))
    return rng.integers(max(1, low), max(1, high) + 1, count).tolist()


def _of_ids(ids: list[int], output_len: int) -> BenchRequest:
    return BenchRequest(
        token_ids=tuple(ids), prompt_tokens=len(ids), output_tokens=output_len
    )
