"""Which compiled programs an engine has: keys, the list of all of them, names."""

from typing import NamedTuple

from jengine.logprobs import LogprobsMode
from jengine.runner.bucket import Buckets, StepBucket
from jengine.runner.sample import EVERYTHING, SampleMode


class ForwardKey(NamedTuple):
    """The forward program of one bucket."""

    bucket: StepBucket


class SampleKey(NamedTuple):
    """The sampling program of a number of rows and a mode."""

    rows: int
    mode: SampleMode


class SeatKey(NamedTuple):
    """The program that sets a seat's biases and counts."""


class PromptKey(NamedTuple):
    """The program that reports on tokens of prompts, of a step of some size.

    Attributes:
      tokens: padded tokens of the step.
      num_logprobs: alternatives reported.
      values: what is reported.
    """

    tokens: int
    num_logprobs: int
    values: LogprobsMode


class DecodeKey(NamedTuple):
    """The program that does both, for a bucket with one token a row."""

    bucket: StepBucket
    mode: SampleMode


StepKey = ForwardKey | SampleKey | DecodeKey
ProgramKey = StepKey | SeatKey | PromptKey


def runs_layers(key: ProgramKey) -> bool:
    """Whether a program runs the model's layers, and so has the cache."""
    return isinstance(key, ForwardKey | DecodeKey)


def all_keys(
    buckets: Buckets, max_logprobs: int, values: LogprobsMode = "raw_logprobs"
) -> list[ProgramKey]:
    """Return every program that requests can need, those for plain decoding first.

    Args:
      buckets: the padded sizes.
      max_logprobs: most alternatives that a row may ask for.
      values: what logprobs are.
    """
    steps = buckets.steps()
    plain = (SampleMode(), SampleMode(random=True))
    singles = [bucket for bucket in steps if bucket.single_token_rows]
    modes = sample_modes(max_logprobs, values)
    tokens = dict.fromkeys(bucket.tokens for bucket in steps)
    return [
        *(DecodeKey(bucket, mode) for bucket in singles for mode in plain),
        *(ForwardKey(bucket) for bucket in steps),
        SeatKey(),
        *(SampleKey(rows, mode) for rows in buckets.rows for mode in modes),
        *(PromptKey(count, max_logprobs, values) for count in tokens),
    ]


def sample_modes(
    max_logprobs: int, values: LogprobsMode = "raw_logprobs"
) -> list[SampleMode]:
    """Return the modes of sampling programs."""
    draws = [(False, False), (True, False), (True, True)]
    plain = [
        SampleMode(random, filtered, masked)
        for random, filtered in draws
        for masked in (False, True)
    ]
    silent = [*plain, EVERYTHING]
    shown = {"num_logprobs": max_logprobs, "values": values}
    reporting = [mode._replace(**shown) for mode in silent]
    return [*silent, *reporting, reporting[-1]._replace(listed=True)]


def program_name(key: ProgramKey) -> str:
    """Return a short name, as it also appears in profiles.

    >>> program_name(DecodeKey(StepBucket(True, 8, 8, 128), SampleMode(random=True)))
    'decode_r8_w128_random'
    >>> program_name(ForwardKey(StepBucket(False, 512, 256, 128)))
    'forward_t512_w128'
    >>> program_name(SampleKey(8, SampleMode(masked=True, num_logprobs=20)))
    'sample_r8_greedy_masked_logprobs20'
    """
    match key:
        case ForwardKey(bucket):
            return f"forward_{_bucket_name(bucket)}"
        case DecodeKey(bucket, mode):
            return f"decode_{_bucket_name(bucket)}_{_mode_name(mode)}"
        case SampleKey(rows, mode):
            return f"sample_r{rows}_{_mode_name(mode)}"
        case SeatKey():
            return "set_seat"
        case PromptKey(tokens, num_logprobs):
            return f"prompt_t{tokens}_logprobs{num_logprobs}"


def _bucket_name(bucket: StepBucket) -> str:
    size = f"r{bucket.rows}" if bucket.single_token_rows else f"t{bucket.tokens}"
    return f"{size}_w{bucket.table_width}"


def _mode_name(mode: SampleMode) -> str:
    words = ["random" if mode.random else "greedy"]
    features = ("filtered", "masked", "adjusted", "listed")
    words += [word for word in features if getattr(mode, word)]
    if mode.num_logprobs is not None:
        words.append(f"logprobs{mode.num_logprobs}")
    return "_".join(words)
