"""Measure the throughput of every combination of some engine options.

jengine bench sweep --grid max_num_seqs=8,32 --grid max_num_batched_tokens=256,1024
"""

import argparse
import gc
import sys
from collections.abc import Mapping
from typing import Any

from jengine.bench.sweep import SweepPoint, format_sweep, run_sweep
from jengine.bench.throughput import ThroughputResult, measure_throughput
from jengine.cli_bench.dataset_flags import add_dataset_flags
from jengine.cli_bench.engine_flags import add_model_flags, make_llm
from jengine.cli_bench.flag_types import choices, not_negative, say
from jengine.cli_bench.result_file import add_result_flag, save_if_asked
from jengine.cli_bench.throughput_flags import requests_for


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument(
        "--grid",
        action="append",
        required=True,
        type=choices,
        metavar="OPTION=A,B,...",
        help="values of an engine option to try; may be given several times",
    )
    add_dataset_flags(parser, num_prompts=200)
    parser.add_argument(
        "--num-warmups",
        type=not_negative,
        metavar="N",
        help="requests before those that count, so that programs are compiled (all)",
    )
    add_result_flag(parser, wording="write all points there")
    add_model_flags(parser)


def run(flags: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Measure, print, and return the exit status: 1 if no point could be measured."""
    del environment  # nothing is started
    points = run_sweep(dict(flags.grid), lambda o: _measure(flags, o), _tell)
    sys.stdout.write(format_sweep(points))
    save_if_asked(flags, {"points": [point.to_dict() for point in points]})
    return 0 if any(point.result for point in points) else 1


def _measure(flags: argparse.Namespace, options: Mapping[str, Any]) -> ThroughputResult:
    llm = make_llm(flags, overrides=options)
    try:
        requests = requests_for(flags, llm, llm.get_tokenizer())
        warmups = len(requests) if flags.num_warmups is None else flags.num_warmups
        return measure_throughput(llm, requests, num_warmups=warmups)
    finally:
        del llm
        gc.collect()  # the next engine needs the memory of this one


def _tell(point: SweepPoint) -> None:
    named = ", ".join(f"{name}={value}" for name, value in point.options.items())
    if point.result is None:
        say(f"{named}: {point.error}")
    else:
        say(f"{named}: {point.result.output_tokens_per_second:.2f} output tokens/s")
