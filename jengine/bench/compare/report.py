"""A comparison as a table for a terminal, and as a list for a JSON file."""

from collections.abc import Sequence
from typing import Any

from jengine.bench.compare.result import BackendResult, ratio_to_best_other
from jengine.bench.machine import Machine
from jengine.bench.text_table import format_table

_NONE = "-"


def format_report(results: Sequence[BackendResult], machine: Machine) -> str:
    """Return tables of speed and of starts, then what failed."""
    parts = [str(machine) + "\n", _speeds(results), _starts(results)]
    errors = {r.backend: r.error for r in results if r.error is not None}
    parts += [f"{name} failed: {error}\n" for name, error in errors.items()]
    return "\n".join(parts)


def to_list(results: Sequence[BackendResult], machine: Machine) -> list[dict[str, Any]]:
    """Return plain values, one dict for each engine and batch size."""
    about = machine.to_dict()
    return [{**result.to_dict(), "machine": about} for result in results]


def _speeds(results: Sequence[BackendResult]) -> str:
    """Return medians of the output tokens per second, by batch size."""
    names = list(dict.fromkeys(result.backend for result in results))
    header = ["batch", *names, f"{names[0]} / best other" if names else ""]
    rows = []
    for batch in dict.fromkeys(result.batch for result in results):
        found = {r.backend: r for r in results if r.batch == batch}
        ratio = ratio_to_best_other(results, names[0], batch)
        rows.append(
            [
                str(batch),
                *(_rate(found[name]) for name in names),
                _NONE if ratio is None else f"{ratio:.2f}",
            ]
        )
    note = (
        "output tokens per second: median (least to most) of the rounds;"
        " * = others used the machine meanwhile\n"
    )
    return note + format_table(header, rows)


def _rate(result: BackendResult) -> str:
    if result.median is None:
        return "failed" if result.error else _NONE
    rates = [sample.tokens_per_s for sample in result.samples]
    mark = "*" if result.is_disturbed else ""
    return f"{result.median:.1f}{mark} ({min(rates):.1f}-{max(rates):.1f})"


def _starts(results: Sequence[BackendResult]) -> str:
    last = {result.backend: result for result in results}  # has seen most memory
    header = ["backend", "version", "loaded s", "first token s", "peak GiB", "same ids"]
    rows = [
        [
            name,
            one.version or _NONE,
            _seconds(one.init_s),
            _seconds(one.first_token_s),
            _NONE if not one.peak_rss_bytes else f"{one.peak_rss_bytes / 2**30:.2f}",
            _least_same(results, name),
        ]
        for name, one in last.items()
    ]
    return format_table(header, rows)


def _least_same(results: Sequence[BackendResult], name: str) -> str:
    shares = [r.same_tokens for r in results if r.backend == name]
    known = [share for share in shares if share is not None]
    return f"{min(known):.1%}" if known else _NONE


def _seconds(value: float | None) -> str:
    return _NONE if value is None else f"{value:.1f}"
