"""What the values of flags are read as."""

import argparse
import sys


def count(text: str) -> int:
    """Read a number that is at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def counts(text: str) -> tuple[int, ...]:
    """Read such numbers, with commas in between."""
    return tuple(count(one) for one in text.split(","))


def names(text: str) -> tuple[str, ...]:
    """Read names, with commas in between."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def lengths(text: str) -> tuple[int, int]:
    """Read a length, or the least and the most with a dash in between."""
    least, _, most = text.partition("-")
    return count(least), count(most or least)


def setting(text: str) -> tuple[str, str]:
    """Read NAME=VALUE."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name, value


def add_setting(
    parser: argparse.ArgumentParser, flag: str, metavar: str, help_: str
) -> None:
    """Add a flag of the form NAME=VALUE that may be given several times."""
    parser.add_argument(
        flag,
        action="append",
        default=[],
        type=setting,
        metavar=metavar,
        help=help_ + "; may be given several times",
    )


def say(line: str) -> None:
    """Write a line of progress to stderr."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
