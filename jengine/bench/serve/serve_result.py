"""What the users of a server notice under a load, drawn from the outcomes."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jengine.bench.figures import Summary, count_good, summarise, tpot
from jengine.bench.serve.outcome import Outcome

NAMES = {
    "ttft": ("TTFT", "Time to First Token"),
    "tpot": ("TPOT", "Time per Output Token (excl. 1st token)"),
    "itl": ("ITL", "Inter-token Latency"),
    "e2el": ("E2EL", "End-to-end Latency"),
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServeResult:
    """Figures of a load; durations are in seconds.

    Attributes:
      duration: from the first request to the end of the last.
      completed: requests that succeeded; all that follows is about these.
      failed: requests that did not.
      total_input: prompt tokens.
      total_output: output tokens.
      good: requests that met all objectives; None if there were none.
      peak_output_rate: most pieces that came within one second.
      peak_concurrency: most requests that were under way within one second.
      summaries: of "ttft", "tpot", "itl" and "e2el".
    """

    duration: float
    completed: int
    failed: int
    total_input: int
    total_output: int
    good: int | None
    peak_output_rate: int
    peak_concurrency: int
    summaries: Mapping[str, Summary]

    def rates(self) -> dict[str, float]:
        """Return figures per second, by vLLM's names."""
        found = {
            "request_throughput": self.completed / self.duration,
            "output_throughput": self.total_output / self.duration,
            "total_token_throughput": (self.total_input + self.total_output)
            / self.duration,
        }
        if self.good is not None:
            found["request_goodput"] = self.good / self.duration
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return plain values by vLLM's names, durations in milliseconds."""
        found: dict[str, Any] = {
            "duration": self.duration,
            "completed": self.completed,
            "failed": self.failed,
            "total_input_tokens": self.total_input,
            "total_output_tokens": self.total_output,
            **self.rates(),
            "max_output_tokens_per_s": self.peak_output_rate,
            "max_concurrent_requests": self.peak_concurrency,
        }
        for name, summary in self.summaries.items():
            found[f"mean_{name}_ms"] = summary.mean * 1e3
            found[f"median_{name}_ms"] = summary.median * 1e3
            found[f"std_{name}_ms"] = summary.std * 1e3
            for percent, value in summary.percentiles:
                found[f"p{percent:g}_{name}_ms"] = value * 1e3
        return found


def make_result(
    outcomes: Sequence[Outcome],
    duration: float,
    *,
    percents: Sequence[float] = (99.0,),
    slos: Mapping[str, float] | None = None,
) -> ServeResult:
    """Draw the figures.

    TPOT is that of requests with two tokens or more; for the objectives it counts as 0
    for all others. ITL is from piece to piece.

    Args:
      outcomes: of all requests.
      duration: seconds from the first request to the end of the last.
      percents: which percentiles.
      slos: longest durations by name, in seconds; None if there are no objectives.
    """
    done = [one for one in outcomes if one.error is None]
    tpots = [tpot(one.latency_s, one.ttft_s, one.output_tokens) for one in done]
    durations = {
        "ttft": [one.ttft_s for one in done],
        "tpot": [one for one in tpots if one is not None],
        "itl": [gap for one in done for gap in one.itl_s],
        "e2el": [one.latency_s for one in done],
    }
    judged = durations | {"tpot": [one or 0.0 for one in tpots]}
    peak_rate, peak_concurrency = _peaks(done)
    return ServeResult(
        duration=duration,
        completed=len(done),
        failed=len(outcomes) - len(done),
        total_input=sum(one.prompt_tokens for one in done),
        total_output=sum(one.output_tokens for one in done),
        good=count_good(slos, judged) if slos else None,
        peak_output_rate=peak_rate,
        peak_concurrency=peak_concurrency,
        summaries={name: summarise(v, percents) for name, v in durations.items()},
    )


def detailed(outcomes: Sequence[Outcome]) -> dict[str, list[Any]]:
    """Return what is known of each request, by vLLM's names."""
    return {
        "input_lens": [one.prompt_tokens for one in outcomes],
        "output_lens": [one.output_tokens for one in outcomes],
        "start_times": [one.start_s for one in outcomes],
        "ttfts": [one.ttft_s for one in outcomes],
        "itls": [list(one.itl_s) for one in outcomes],
        "e2els": [one.latency_s for one in outcomes],
        "generated_texts": [one.text for one in outcomes],
        "errors": [one.error or "" for one in outcomes],
    }


def _peaks(done: Sequence[Outcome]) -> tuple[int, int]:
    """Return the most pieces, and the most requests under way, of any second."""
    if not done:
        return 0, 0
    first = min(one.start_s for one in done)
    seconds = math.ceil(max(one.start_s + one.latency_s for one in done) - first) + 1
    pieces = np.zeros(seconds, np.int64)
    under_way = np.zeros(seconds, np.int64)
    for one in done:
        start = one.start_s - first
        times = start + one.ttft_s + np.cumsum([0.0, *one.itl_s])
        np.add.at(pieces, np.clip(times.astype(np.int64), 0, seconds - 1), 1)
        under_way[int(start) : int(start + one.latency_s) + 1] += 1
    return int(pieces.max()), int(under_way.max())
