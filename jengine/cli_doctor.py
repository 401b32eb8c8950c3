"""`jengine doctor`: what this machine has, and what jengine makes of it."""

import argparse
import json
import sys
from collections.abc import Mapping

EXIT_CANNOT_RUN = 1


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.description = (
        "Say what this machine has, what jengine would choose on it and why, and what"
        " mends what is missing. A bug report needs this. The exit status is"
        f" {EXIT_CANNOT_RUN} if no model can be run."
    )
    parser.add_argument("--json", action="store_true", help="for programs")


def run(flags: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Run the command and return its exit status.

    Args:
      flags: the parsed command line.
      environment: variables of this process.
    """
    from jengine.doctor.diagnose import diagnose
    from jengine.doctor.text import print_report

    report = diagnose(environment)
    if flags.json:
        sys.stdout.write(json.dumps(report.to_dict(), indent=1) + "\n")
    else:
        print_report(report, sys.stdout)
    return 0 if report.can_run else EXIT_CANNOT_RUN
