"""Measure how long one batch takes from its prompts to its last token.

The prefix cache is off unless a flag turns it on: each iteration has the same prompts.
"""

import argparse
import sys
from collections.abc import Mapping

from tqdm.auto import tqdm

from jengine.bench.latency import measure_latency
from jengine.cli_bench.company import watching_others
from jengine.cli_bench.engine_flags import add_model_flags, make_llm
from jengine.cli_bench.flag_types import count, not_negative
from jengine.cli_bench.result_file import add_result_flag, save_if_asked


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags; defaults are vLLM's."""
    parser.add_argument("--input-len", type=count, default=32, metavar="N")
    parser.add_argument("--output-len", type=count, default=128, metavar="N")
    parser.add_argument("--batch-size", type=count, default=8, metavar="N")
    parser.add_argument(
        "--n", type=count, default=1, metavar="N", help="completions of each prompt"
    )
    parser.add_argument(
        "--num-iters-warmup", type=not_negative, default=10, metavar="N"
    )
    parser.add_argument("--num-iters", type=count, default=30, metavar="N")
    parser.add_argument("--disable-detokenize", action="store_true")
    add_result_flag(parser)
    add_model_flags(parser)


def run(flags: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Measure, print, and return the exit status."""
    del environment  # nothing is started
    llm = make_llm(flags, defaults={"enable_prefix_caching": False})
    total = flags.num_iters_warmup + flags.num_iters
    bar = tqdm(total=total, desc="Iterations", dynamic_ncols=True)
    with bar, watching_others():
        result = measure_latency(
            llm,
            input_len=flags.input_len,
            output_len=flags.output_len,
            batch_size=flags.batch_size,
            n=flags.n,
            num_iters_warmup=flags.num_iters_warmup,
            num_iters=flags.num_iters,
            disable_detokenize=flags.disable_detokenize,
            on_iteration=bar.update,
        )
    sys.stdout.write(f"{result}\n")
    save_if_asked(flags, result.to_dict())
    return 0
