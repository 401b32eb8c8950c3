"""The command `jengine bench` and its subcommands."""

import argparse
from collections.abc import Mapping
from typing import Any

from jengine.cli_bench import (
    compare_flags,
    latency_flags,
    roofline_flags,
    serve_flags,
    sweep_flags,
    throughput_flags,
)

# Each has HELP, add_flags(parser) and run(flags, environment) -> exit status.
_COMMANDS: Mapping[str, Any] = {
    "latency": latency_flags,
    "throughput": throughput_flags,
    "serve": serve_flags,
    "roofline": roofline_flags,
    "sweep": sweep_flags,
    "compare": compare_flags,
}


def add_bench_command(commands: Any) -> None:
    """Add the command to a parser's subcommands."""
    parser = commands.add_parser(
        "bench",
        help="measure speed",
        description="Measure speed. Figures go to stdout, progress to stderr.",
        allow_abbrev=False,
    )
    kinds = parser.add_subparsers(dest="bench", required=True, metavar="WHAT")
    for name, module in _COMMANDS.items():
        one = kinds.add_parser(
            name,
            help=module.HELP,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add_flags(one)


def run_bench(flags: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Run the command and return its exit status.

    Args:
      flags: the parsed command line.
      environment: variables of this process, for those that it starts.

    Raises:
      JengineError: what was asked for makes no sense, or cannot be measured here.
    """
    return _COMMANDS[flags.bench].run(flags, environment)
