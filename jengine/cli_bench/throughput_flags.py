"""Measure how much an engine does when all requests are there from the start."""

import argparse
import asyncio
import sys
from collections.abc import Mapping
from typing import Any

from jengine.bench.bench_request import BenchRequest
from jengine.bench.programs import about_programs
from jengine.bench.throughput import (
    ThroughputResult,
    measure_async_throughput,
    measure_throughput,
)
from jengine.cli_bench.company import watching_others
from jengine.cli_bench.dataset_flags import add_dataset_flags, make_requests
from jengine.cli_bench.engine_flags import add_model_flags, make_llm
from jengine.cli_bench.flag_types import count, not_negative, say
from jengine.cli_bench.result_file import add_result_flag, save_if_asked


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags; defaults are vLLM's."""
    add_dataset_flags(parser, num_prompts=1000)
    parser.add_argument(
        "--n", type=count, default=1, metavar="N", help="completions of each prompt"
    )
    parser.add_argument("--num-warmups", type=not_negative, default=0, metavar="N")
    parser.add_argument(
        "--async-engine", action="store_true", help="through AsyncLLM, without warm-up"
    )
    parser.add_argument("--disable-detokenize", action="store_true")
    add_result_flag(parser)
    add_model_flags(parser)


def run(flags: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Measure, print, and return the exit status."""
    del environment  # nothing is started
    if flags.async_engine:
        result = asyncio.run(_run_async(flags))
    else:
        llm = make_llm(flags)
        requests = requests_for(flags, llm, llm.get_tokenizer())
        with watching_others():
            result = measure_throughput(
                llm,
                requests,
                n=flags.n,
                disable_detokenize=flags.disable_detokenize,
                num_warmups=flags.num_warmups,
                use_tqdm=True,
            )
    sys.stdout.write(f"{result}\n")
    if result.compiled_programs:
        say(about_programs(result.compiled_programs))
    save_if_asked(flags, result.to_dict())
    return 0


def requests_for(
    flags: argparse.Namespace, llm: Any, tokenizer: Any
) -> list[BenchRequest]:
    """Return the requests that the flags ask for, of ids that an engine knows."""
    return make_requests(
        flags,
        vocab_size=llm.config.vocab_size,
        max_model_len=llm.config.max_model_len,
        encode=None if tokenizer is None else tokenizer.encode,
    )


async def _run_async(flags: argparse.Namespace) -> ThroughputResult:
    with make_llm(flags, is_async=True) as llm:
        return await measure_async_throughput(
            llm,
            requests_for(flags, llm, await llm.get_tokenizer()),
            n=flags.n,
            disable_detokenize=flags.disable_detokenize,
        )
