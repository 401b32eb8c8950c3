"""An engine of this process as a target: a load without a server in between."""

import dataclasses
import itertools
import time
from typing import Any

from jengine.bench.bench_request import BenchRequest
from jengine.bench.programs import count_programs
from jengine.bench.serve.outcome import Outcome
from jengine.bench.throughput import as_prompt
from jengine.sampling_params import RequestOutputKind, SamplingParams


class EngineTarget:
    """Asks an `AsyncLLM`."""

    def __init__(self, llm: Any, params: SamplingParams) -> None:
        """Send nothing yet.

        Args:
          llm: an `AsyncLLM`.
          params: of all requests but for their length.
        """
        self._llm = llm
        self._params = dataclasses.replace(
            params, output_kind=RequestOutputKind.DELTA, stop=()
        )

    async def count_programs(self) -> int:
        """Return how many programs the engine has compiled so far."""
        return count_programs(await self._llm.get_metrics())

    async def send(self, request: BenchRequest, since: float) -> Outcome:
        """Generate and read the outputs as they come; see `Target`."""
        params = dataclasses.replace(self._params, max_tokens=request.output_tokens)
        start = time.perf_counter()
        times: list[float] = []
        texts: list[str] = []
        tokens, error = 0, None
        try:
            async for output in self._llm.generate(as_prompt(request), params):
                times.append(time.perf_counter())
                texts += [one.text for one in output.outputs]
                tokens += sum(len(one.token_ids) for one in output.outputs)
        except Exception as failure:  # any: the load goes on
            error = f"{type(failure).__name__}: {failure}"
        times = times or [start]
        return Outcome(
            prompt_tokens=request.prompt_tokens,
            output_tokens=tokens,
            start_s=start - since,
            ttft_s=times[0] - start,
            itl_s=tuple(b - a for a, b in itertools.pairwise(times)),
            latency_s=times[-1] - start,
            text="".join(texts),
            error=error,
        )
