"""The lines that a part writes: one says that a case started, one what came of it.

From a start without an end the driver knows which case a process died in.
"""

import json
import math
import pathlib
from collections.abc import Mapping
from typing import Any

OK, FAILED, SKIPPED = "ok", "failed", "skipped"
CRASHED, TIMED_OUT, RUNNING = "crashed", "timed out", "running"


def event_line(event: Mapping[str, Any]) -> str:
    """Return an event as a line of strict JSON."""
    return json.dumps(_plain(event), allow_nan=False) + "\n"


def read_events(text: str) -> list[dict[str, Any]]:
    """Parse lines of events; a last line that was cut off is left out."""
    whole, _, _ = text.rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


class EventFile:
    """What all processes of one part wrote."""

    def __init__(self, path: pathlib.Path) -> None:
        """Make an empty file."""
        self.path = path
        path.write_text("", encoding="utf-8")

    @property
    def cases(self) -> list[dict[str, Any]]:
        """One record a case, in the order of their starts."""
        cases: dict[str, dict[str, Any]] = {}
        for event in read_events(self.path.read_text("utf-8")):
            fields = {key: value for key, value in event.items() if key != "event"}
            if event["event"] == "start":
                fields["status"] = RUNNING
            cases[event["case"]] = fields
        return list(cases.values())

    @property
    def open_case(self) -> str | None:
        """The last case that has started and not ended."""
        started = [case for case in self.cases if case["status"] == RUNNING]
        return started[-1]["case"] if started else None

    @property
    def ended(self) -> list[str]:
        """The cases that something came of."""
        return [case["case"] for case in self.cases if case["status"] != RUNNING]

    def close(self, case: str, status: str, reason: str) -> None:
        """End a case whose process no longer can."""
        event = {"event": "end", "case": case, "status": status, "reason": reason}
        text = self.path.read_text("utf-8")
        whole = text[: text.rfind("\n") + 1]  # without what was cut off
        self.path.write_text(whole + event_line(event), encoding="utf-8")


def _plain(value: Any) -> Any:
    """Spell out the floats that JSON has no number for."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    is_odd = isinstance(value, float) and not math.isfinite(value)
    return str(value) if is_odd else value
