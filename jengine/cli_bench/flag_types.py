"""What the values of flags are read as."""

import argparse
import json
import os
import pathlib
import sys
from typing import Any


def count(text: str) -> int:
    """Read a number that is at least 1."""
    number = _integer(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def not_negative(text: str) -> int:
    """Read a number that is at least 0."""
    number = _integer(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{number} is less than 0")
    return number


def positive(text: str) -> float:
    """Read a number above 0."""
    number = _number(text)
    if not number > 0:  # not a number is none
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def amount(text: str) -> float:
    """Read a number that is at least 0, with or without a fraction."""
    number = _number(text)
    if not number >= 0:  # not a number is none
        raise argparse.ArgumentTypeError(f"{text} is not at least 0")
    return number


def ratio(text: str) -> float:
    """Read a number from 0 to below 1."""
    number = _number(text)
    if not 0 <= number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to below 1")
    return number


def json_object(text: str) -> dict[str, Any]:
    """Read an object of JSON."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text} is no JSON object")
    return value


def counts(text: str) -> tuple[int, ...]:
    """Read such numbers, with commas in between."""
    return tuple(count(one) for one in text.split(","))


def numbers(text: str) -> tuple[float, ...]:
    """Read numbers, with commas in between."""
    return tuple(_number(one) for one in text.split(","))


def percents(text: str) -> tuple[float, ...]:
    """Read numbers from 0 to 100, with commas in between."""
    found = numbers(text)
    for one in found:
        if not 0 <= one <= 100:
            raise argparse.ArgumentTypeError(f"{one:g} is not from 0 to 100")
    return found


def output_file(text: str) -> str:
    """Read the name of a file to write, before anything is measured in vain."""
    path = pathlib.Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path.parent}")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{path} cannot be written")
    return text


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


def choices(text: str) -> tuple[str, list[Any]]:
    """Read NAME=VALUE,VALUE,...; what is no JSON is a string."""
    name, values = setting(text)
    return name.replace("-", "_"), [_value(one) for one in values.split(",")]


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


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from error


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from error


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
