"""What came of every part, kept as a JSON file that is whole at any time."""

import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from jengine.bench.gpu_check.events import CRASHED, FAILED, OK, SKIPPED

SCHEMA = 1


class Report:
    """Collects records part by part; every change replaces the file."""

    def __init__(self, path: pathlib.Path, **head: Any) -> None:
        """Write a report without parts.

        Args:
          path: of the JSON file.
          **head: fields that say how the check was run.

        Raises:
          OSError: the file cannot be written.
        """
        self._path = path
        self._head = head
        self._parts: dict[str, dict[str, Any]] = {}
        self._write()

    @property
    def parts(self) -> list[dict[str, Any]]:
        """The parts so far, in order."""
        return list(self._parts.values())

    @property
    def has_failed(self) -> bool:
        """Whether a case gave a wrong result, raised or died."""
        statuses = [part["status"] for part in self.parts]
        statuses += [case["status"] for part in self.parts for case in part["cases"]]
        return not {FAILED, CRASHED}.isdisjoint(statuses)

    def set_head(self, **head: Any) -> None:
        """Add fields that say how the check was run."""
        self._head |= head
        self._write()

    def set_part(
        self,
        name: str,
        *,
        status: str,
        cases: Sequence[Mapping[str, Any]] = (),
        **fields: Any,
    ) -> None:
        """Replace what is known of a part; None fields are left out."""
        known = {key: value for key, value in fields.items() if value is not None}
        listed = [dict(case) for case in cases]
        self._parts[name] = {"name": name, "status": status, **known, "cases": listed}
        self._write()

    def _write(self) -> None:
        whole = {"schema": SCHEMA, **self._head, "parts": self.parts}
        text = json.dumps(whole, indent=1, allow_nan=False) + "\n"
        beside = self._path.with_name(self._path.name + ".new")
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, self._path)


def status_of(cases: Sequence[Mapping[str, Any]]) -> str:
    """Return the status of a part from those of its cases: the worst, or ok."""
    found = {case["status"] for case in cases}
    for status in (CRASHED, FAILED):
        if status in found:
            return status
    return SKIPPED if found <= {SKIPPED} else OK
