"""Results as JSON files, each with the machine and the software behind it."""

import datetime
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from jengine.bench.machine import describe_machine


def save_result(path: str | pathlib.Path, result: Mapping[str, Any]) -> None:
    """Write a result, with `date` and `machine` added.

    Raises:
      OSError: the file cannot be written.
    """
    pathlib.Path(path).write_text(to_json(stamped(result)), "utf-8")


def append_result(path: str | pathlib.Path, result: Mapping[str, Any]) -> None:
    """Add a result to a file of one JSON object a line."""
    line = json.dumps(stamped(result), default=_plain, allow_nan=True) + "\n"
    with open(path, "a", encoding="utf-8") as file:
        file.write(line)


def stamped(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result with the time of day and the machine added."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"date": now, **result, "machine": describe_machine().to_dict()}


def to_json(value: Any) -> str:
    """Return text for a person to read."""
    return json.dumps(value, indent=1, default=_plain) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, pathlib.Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")
