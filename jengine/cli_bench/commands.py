"""The command `jengine bench`: the names of its subcommands."""

import argparse
from collections.abc import Mapping

from jengine.cli_commands import Command, add_commands

COMMANDS: Mapping[str, Command] = {
    "latency": Command("how long one batch takes", "jengine.cli_bench.latency_flags"),
    "throughput": Command(
        "how much is done when all requests are there at once",
        "jengine.cli_bench.throughput_flags",
    ),
    "serve": Command(
        "what users of a server notice under a load", "jengine.cli_bench.serve_flags"
    ),
    "roofline": Command(
        "step time against batch size, with the limits of the machine",
        "jengine.cli_bench.roofline_flags",
    ),
    "sweep": Command(
        "throughput over a grid of engine options", "jengine.cli_bench.sweep_flags"
    ),
    "compare": Command(
        "engines side by side: jengine, transformers, vLLM, llama.cpp",
        "jengine.cli_bench.compare_flags",
    ),
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands; each brings its own `run`."""
    parser.description = "Measure speed. Figures go to stdout, progress to stderr."
    add_commands(parser, COMMANDS, dest="bench", metavar="WHAT")
