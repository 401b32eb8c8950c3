"""The flags of data sets, shared by the commands that ask many things."""

import argparse
from collections.abc import Callable, Sequence

from jengine.bench.bench_request import BenchRequest
from jengine.bench.datasets import (
    random_requests,
    shared_prefix_requests,
    sharegpt_requests,
    trace_requests,
)
from jengine.bench.trace import read_trace, scaled, shifted
from jengine.cli_bench.flag_types import count, not_negative, positive, ratio, say
from jengine.errors import InvalidValueError

INPUT_LEN, OUTPUT_LEN = 1024, 128
NAMES = ("random", "prefix_repetition", "sharegpt", "trace")

_WAYS_TO_SHORTEN = {
    "random": "Lower --input-len, --output-len, or --random-prefix-len.",
    "prefix_repetition": "Lower --prefix-repetition-prefix-len,"
    " --prefix-repetition-suffix-len or --output-len.",
    "sharegpt": "Give --output-len, or a model of longer context.",
    "trace": "Give --max-prompt-tokens and --max-output-tokens.",
}


def add_dataset_flags(parser: argparse.ArgumentParser, *, num_prompts: int) -> None:
    """Add the flags; defaults are vLLM's."""
    group = parser.add_argument_group("data set")
    group.add_argument(
        "--dataset-name",
        choices=NAMES,
        help="random ids; prompts that share beginnings; conversations in ShareGPT's"
        " format; a recorded trace (a CSV file of arrival times, prompt tokens and"
        " generated tokens). Without it random, or what the path is: .csv is a trace",
    )
    group.add_argument("--dataset-path", metavar="FILE", help="of sharegpt and trace")
    group.add_argument("--num-prompts", type=count, default=num_prompts, metavar="N")
    group.add_argument(
        "--seed",
        type=not_negative,
        default=0,
        metavar="N",
        help="of data and arrival times",
    )
    group.add_argument(
        "--input-len",
        "--random-input-len",
        type=count,
        metavar="N",
        help=f"prompt tokens of random ({INPUT_LEN})",
    )
    group.add_argument(
        "--output-len",
        "--random-output-len",
        "--sharegpt-output-len",
        "--prefix-repetition-output-len",
        type=count,
        metavar="N",
        help=f"tokens to generate ({OUTPUT_LEN}, for conversations as recorded)",
    )
    group.add_argument(
        "--random-range-ratio",
        type=ratio,
        default=0.0,
        metavar="X",
        help="lengths lie between 1 - X and 1 + X times theirs",
    )
    group.add_argument("--random-prefix-len", type=not_negative, default=0, metavar="N")
    group.add_argument(
        "--prefix-repetition-prefix-len", type=count, default=256, metavar="N"
    )
    group.add_argument(
        "--prefix-repetition-suffix-len", type=count, default=256, metavar="N"
    )
    group.add_argument(
        "--prefix-repetition-num-prefixes", type=count, default=10, metavar="N"
    )
    group.add_argument(
        "--trace-speed",
        type=positive,
        default=1.0,
        metavar="X",
        help="how many times as fast a trace runs",
    )
    group.add_argument(
        "--max-prompt-tokens", type=count, metavar="N", help="cuts a trace's prompts"
    )
    group.add_argument(
        "--max-output-tokens", type=count, metavar="N", help="cuts a trace's outputs"
    )


def make_requests(
    flags: argparse.Namespace,
    *,
    vocab_size: int,
    encode: Callable[[str], Sequence[int]] | None,
    max_model_len: int | None = None,
) -> list[BenchRequest]:
    """Return the requests that the flags ask for.

    Where no flag says how long prompts of random ids are, they are as long as vLLM's,
    or as fits.

    Args:
      flags: see `add_dataset_flags`.
      vocab_size: random ids are drawn below it.
      encode: from text to ids, for conversations; None if there is no tokenizer.
      max_model_len: longest prompt and output together; None where nobody knows.

    Raises:
      InvalidValueError: a flag that is needed is missing, a file cannot be read, or a
        request is too long.
    """
    requests = _make(flags, vocab_size, encode, max_model_len)
    longest = max((r.prompt_tokens + r.output_tokens for r in requests), default=0)
    if max_model_len is not None and longest > max_model_len:
        raise InvalidValueError(
            "the longest request",
            longest,
            f"at most max_model_len = {max_model_len} tokens, prompt and output",
            _WAYS_TO_SHORTEN[dataset_name_of(flags)],
        )
    return requests


def dataset_name_of(flags: argparse.Namespace) -> str:
    """Return the data set that is meant, whether or not it is named."""
    if flags.dataset_name is not None:
        return flags.dataset_name
    if flags.dataset_path is None:
        return "random"
    return "trace" if flags.dataset_path.endswith(".csv") else "sharegpt"


def _make(
    flags: argparse.Namespace,
    vocab_size: int,
    encode: Callable[[str], Sequence[int]] | None,
    max_model_len: int | None,
) -> list[BenchRequest]:
    name = dataset_name_of(flags)
    output = flags.output_len or OUTPUT_LEN
    if name == "random":
        return random_requests(
            flags.num_prompts,
            input_len=flags.input_len or _input_len_that_fits(flags, max_model_len),
            output_len=output,
            vocab_size=vocab_size,
            range_ratio=flags.random_range_ratio,
            prefix_len=flags.random_prefix_len,
            seed=flags.seed,
        )
    if name == "prefix_repetition":
        return shared_prefix_requests(
            flags.num_prompts,
            num_prefixes=flags.prefix_repetition_num_prefixes,
            prefix_len=flags.prefix_repetition_prefix_len,
            suffix_len=flags.prefix_repetition_suffix_len,
            output_len=output,
            vocab_size=vocab_size,
            seed=flags.seed,
        )
    if flags.dataset_path is None:
        raise InvalidValueError("dataset_path", None, f"a file, for {name}")
    if name == "trace":
        return _trace(flags, vocab_size)
    if encode is None:
        raise InvalidValueError("tokenizer", None, "one, for conversations")
    return sharegpt_requests(
        flags.dataset_path,
        flags.num_prompts,
        encode=encode,
        output_len=flags.output_len,
        seed=flags.seed,
    )


def _input_len_that_fits(flags: argparse.Namespace, max_model_len: int | None) -> int:
    if max_model_len is None:
        return INPUT_LEN
    longest = (max_model_len - flags.random_prefix_len) / (1 + flags.random_range_ratio)
    fits = int(longest) - 2 - (flags.output_len or OUTPUT_LEN)  # 2: lengths are rounded
    if fits < INPUT_LEN:
        say(f"--input-len {max(1, fits)}, as fits into max_model_len = {max_model_len}")
    return max(1, min(INPUT_LEN, fits))


def _trace(flags: argparse.Namespace, vocab_size: int) -> list[BenchRequest]:
    entries = shifted(read_trace(flags.dataset_path)[: flags.num_prompts])
    cut = scaled(
        entries,
        speed=flags.trace_speed,
        max_prompt_tokens=flags.max_prompt_tokens,
        max_output_tokens=flags.max_output_tokens,
    )
    return trace_requests(cut, vocab_size=vocab_size, seed=flags.seed)
