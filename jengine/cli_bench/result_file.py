"""The flag `--output-json` of a command, and what it asks for."""

import argparse
from collections.abc import Mapping
from typing import Any

from jengine.bench.saved import save_result
from jengine.cli_bench.flag_types import output_file


def add_result_flag(
    parser: argparse.ArgumentParser, *, wording: str = "write the result there"
) -> None:
    """Add the flag; `wording` is its help."""
    parser.add_argument("--output-json", type=output_file, metavar="FILE", help=wording)


def save_if_asked(flags: argparse.Namespace, result: Mapping[str, Any]) -> None:
    """Write a result where the flag says, if it was given.

    Raises:
      OSError: the file cannot be written.
    """
    if flags.output_json is not None:
        save_result(flags.output_json, result)
