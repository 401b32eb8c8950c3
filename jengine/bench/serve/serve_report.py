"""The figures of a load, laid out as vLLM's benchmark prints them."""

from collections.abc import Sequence

from jengine.bench.figures import Summary
from jengine.bench.serve.serve_result import NAMES, ServeResult

_WIDTH = 50
DEFAULT_METRICS = ("ttft", "tpot", "itl")


def format_serve_result(
    result: ServeResult,
    *,
    request_rate: float,
    max_concurrency: int | None,
    metrics: Sequence[str] = DEFAULT_METRICS,
) -> str:
    """Return the text of a report.

    Args:
      result: the figures.
      request_rate: requests per second that were asked for; infinity for all at once.
      max_concurrency: the client's limit; None if it had none.
      metrics: which durations to show, keys of `NAMES`.
    """
    lines = [f"{' Serving Benchmark Result ':=^{_WIDTH}}"]
    lines += _counts(result, request_rate, max_concurrency)
    for name in metrics:
        short, title = NAMES[name]
        lines.append(f"{title:-^{_WIDTH}}")
        lines += _durations(short, result.summaries[name])
    return "\n".join([*lines, "=" * _WIDTH])


def _counts(
    result: ServeResult, request_rate: float, max_concurrency: int | None
) -> list[str]:
    rates = result.rates()
    lines = [
        _line("Successful requests:", result.completed),
        _line("Failed requests:", result.failed),
    ]
    if max_concurrency is not None:
        lines.append(_line("Maximum request concurrency:", max_concurrency))
    if request_rate != float("inf"):
        lines.append(_line("Request rate configured (RPS):", float(request_rate)))
    lines += [
        _line("Benchmark duration (s):", result.duration),
        _line("Total input tokens:", result.total_input),
        _line("Total generated tokens:", result.total_output),
        _line("Request throughput (req/s):", rates["request_throughput"]),
    ]
    if "request_goodput" in rates:
        lines.append(_line("Request goodput (req/s):", rates["request_goodput"]))
    return [
        *lines,
        _line("Output token throughput (tok/s):", rates["output_throughput"]),
        _line("Peak output token throughput (tok/s):", float(result.peak_output_rate)),
        _line("Peak concurrent requests:", float(result.peak_concurrency)),
        _line("Total token throughput (tok/s):", rates["total_token_throughput"]),
    ]


def _durations(short: str, summary: Summary) -> list[str]:
    lines = [
        _line(f"Mean {short} (ms):", summary.mean * 1e3),
        _line(f"Median {short} (ms):", summary.median * 1e3),
    ]
    lines += [
        _line(f"P{percent:g} {short} (ms):", value * 1e3)
        for percent, value in summary.percentiles
    ]
    return lines


def _line(label: str, value: float | int) -> str:
    shown = f"{value:.2f}" if isinstance(value, float) else str(value)
    return f"{label:<40} {shown:<10}".rstrip()
