"""The report as a table for a terminal, and what all of it is measured in."""

from collections.abc import Mapping, Sequence
from typing import Any

LEGEND = (
    "times are medians over samples, each a chain of dependent calls; compilation is",
    "not in them. Shares are of the copy and the product measured in the same process.",
)
_WIDEST_NAME = 40


def format_report(parts: Sequence[Mapping[str, Any]]) -> str:
    """Return one line a case, below one line a part."""
    lines = []
    for part in parts:
        seconds = f", {part['seconds']:.0f} s" if "seconds" in part else ""
        why = f": {part['reason']}" if part.get("reason") else ""
        lines.append(f"{part['title']} ({part['name']}{seconds}) {part['status']}{why}")
        lines += [_case_line(case) for case in part["cases"]]
    return "\n".join([*lines, *LEGEND]) + "\n"


def _case_line(case: Mapping[str, Any]) -> str:
    said = case.get("summary") or case.get("reason") or ""
    return f"  {case['case']:<{_WIDEST_NAME}} {case['status']:<9} {said}".rstrip()
