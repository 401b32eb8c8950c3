"""How long one batch takes, from its prompts to its last token."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from jengine.bench.figures import summarise
from jengine.sampling_params import SamplingParams

PERCENTS = (10.0, 25.0, 50.0, 75.0, 90.0, 99.0)
_MOST_IDS = 10_000  # as in vLLM: no rare ids; a toy model may have fewer


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LatencyResult:
    """Durations of a batch.

    Attributes:
      input_len: tokens of each prompt.
      output_len: tokens generated for each.
      batch_size: prompts of the batch.
      latencies: seconds of each iteration.
    """

    input_len: int
    output_len: int
    batch_size: int
    latencies: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean of the latencies, in seconds."""
        return summarise(self.latencies).mean

    @property
    def percentiles(self) -> tuple[tuple[float, float], ...]:
        """Pairs of a percent and its latency in seconds."""
        return summarise(self.latencies, PERCENTS).percentiles

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, by vLLM's names."""
        return {
            "avg_latency": self.mean,
            "latencies": list(self.latencies),
            "percentiles": {f"{p:g}": value for p, value in self.percentiles},
            "input_len": self.input_len,
            "output_len": self.output_len,
            "batch_size": self.batch_size,
        }

    def __str__(self) -> str:
        """Return what vLLM's benchmark prints."""
        lines = [f"Avg latency: {self.mean} seconds"]
        lines += [
            f"{p:g}% percentile latency: {v} seconds" for p, v in self.percentiles
        ]
        return "\n".join(lines)


def measure_latency(  # noqa: PLR0913 - vLLM's options
    llm: Any,
    *,
    input_len: int = 32,
    output_len: int = 128,
    batch_size: int = 8,
    n: int = 1,
    num_iters_warmup: int = 10,
    num_iters: int = 30,
    disable_detokenize: bool = False,
    on_iteration: Callable[[], object] = lambda: None,
) -> LatencyResult:
    """Generate for one batch of random prompts again and again.

    Args:
      llm: an `LLM`; without a prefix cache, or all but the first iteration find their
        prompts computed.
      input_len: tokens of each prompt.
      output_len: tokens generated for each, regardless of the end of sequence.
      batch_size: number of prompts.
      n: completions of each prompt.
      num_iters_warmup: iterations before those that count.
      num_iters: iterations that count.
      disable_detokenize: whether to make no text.
      on_iteration: called after each iteration.
    """
    params = SamplingParams(
        n=n,
        temperature=1.0,
        ignore_eos=True,
        max_tokens=output_len,
        detokenize=not disable_detokenize,
    )
    below = min(_MOST_IDS, llm.config.vocab_size)
    ids = np.random.default_rng(0).integers(0, below, (batch_size, input_len))
    prompts = [{"prompt_token_ids": row} for row in ids.tolist()]
    latencies = []
    for _ in range(num_iters_warmup + num_iters):
        start = time.perf_counter()
        llm.generate(prompts, params, use_tqdm=False)
        latencies.append(time.perf_counter() - start)
        on_iteration()
    return LatencyResult(
        input_len=input_len,
        output_len=output_len,
        batch_size=batch_size,
        latencies=tuple(latencies[num_iters_warmup:]),
    )
