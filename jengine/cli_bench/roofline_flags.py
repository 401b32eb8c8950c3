"""Measure decode steps against batch size, beside the limits of this machine.

The limits are measured, too: how fast memory is read and matrices are multiplied.
"""

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from jengine.cli_bench.company import watching_others
from jengine.cli_bench.engine_flags import add_model_flags, make_llm
from jengine.cli_bench.flag_types import count, counts, output_file, say
from jengine.cli_bench.result_file import add_result_flag, save_if_asked


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument(
        "--batches", type=counts, default=(1, 2, 4, 8, 16, 32, 64), metavar="N,N,..."
    )
    parser.add_argument(
        "--context", type=count, default=128, metavar="N", help="tokens of each request"
    )
    parser.add_argument(
        "--steps", type=count, default=20, metavar="N", help="measured at each size"
    )
    parser.add_argument(
        "--png", type=output_file, metavar="FILE", help="draw it (needs matplotlib)"
    )
    add_result_flag(parser)
    add_model_flags(parser)


def run(flags: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Measure, print, and return the exit status."""
    # Here, because they import jax, and the command line starts without it.
    from jengine.bench.roofline.limits import measure_limits
    from jengine.bench.roofline.plot import plot_roofline
    from jengine.bench.roofline.roofline import decode_work, measure_roofline
    from jengine.display.picture import new_figure

    del environment  # nothing is started
    if flags.png is not None:
        new_figure(1, 1)  # what is missing is missed before minutes of measuring
    llm = make_llm(flags, defaults={"max_num_seqs": max(flags.batches)})
    dtype = llm.config.dtype
    sizes = _sizes(flags.model, with_weights=llm.config.asked.load_format != "dummy")
    itemsize = 4 if dtype == "float32" else 2
    with watching_others():
        say("measuring the machine")
        limits = measure_limits(dtype)
        result = measure_roofline(
            llm,
            lambda batch: decode_work(
                sizes, batch, context=flags.context, itemsize=itemsize
            ),
            limits,
            batches=flags.batches,
            context=flags.context,
            steps=flags.steps,
            on_point=_tell,
        )
    sys.stdout.write(f"{result}\n")
    save_if_asked(flags, result.to_dict())
    if flags.png is not None:
        plot_roofline(result, flags.png)
    return 0


def _sizes(model: str, *, with_weights: bool) -> Any:
    from jengine.aot.cost import model_sizes
    from jengine.checkpoint import open_checkpoint
    from jengine.runner.build import read_config

    checkpoint = open_checkpoint(model, with_weights=with_weights)
    return model_sizes(read_config(checkpoint))


def _tell(point: Any) -> None:
    say(f"batch {point.batch}: {point.seconds * 1e3:.2f} ms")
