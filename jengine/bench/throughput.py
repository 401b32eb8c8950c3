"""How much an engine does when all requests are there from the start."""

import asyncio
import dataclasses
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from jengine.bench.bench_request import BenchRequest
from jengine.bench.programs import count_programs
from jengine.errors import InvalidValueError
from jengine.sampling_params import RequestOutputKind, SamplingParams


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputResult:
    """Work done and time taken.

    Attributes:
      elapsed_time: seconds from the first prompt to the last token.
      num_requests: prompts.
      prompt_tokens: of all prompts.
      output_tokens: of all completions.
      computed_tokens: tokens that went through the model; fewer than all if prompts
        share beginnings and the prefix cache is on.
      compiled_programs: programs that were compiled meanwhile, which takes its time.
    """

    elapsed_time: float
    num_requests: int
    prompt_tokens: int
    output_tokens: int
    computed_tokens: int
    compiled_programs: int = 0

    @property
    def requests_per_second(self) -> float:
        """Requests ended per second."""
        return self.num_requests / self.elapsed_time

    @property
    def output_tokens_per_second(self) -> float:
        """Output tokens per second."""
        return self.output_tokens / self.elapsed_time

    @property
    def tokens_per_second(self) -> float:
        """Prompt and output tokens per second."""
        return (self.prompt_tokens + self.output_tokens) / self.elapsed_time

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, by vLLM's names, and further ones."""
        return {
            "elapsed_time": self.elapsed_time,
            "num_requests": self.num_requests,
            "total_num_tokens": self.prompt_tokens + self.output_tokens,
            "requests_per_second": self.requests_per_second,
            "tokens_per_second": self.tokens_per_second,
            "output_tokens_per_second": self.output_tokens_per_second,
            "total_prompt_tokens": self.prompt_tokens,
            "total_output_tokens": self.output_tokens,
            "computed_tokens": self.computed_tokens,
            "compiled_programs": self.compiled_programs,
        }

    def __str__(self) -> str:
        """Return what vLLM's benchmark prints."""
        return (
            f"Throughput: {self.requests_per_second:.2f} requests/s, "
            f"{self.tokens_per_second:.2f} total tokens/s, "
            f"{self.output_tokens_per_second:.2f} output tokens/s\n"
            f"Total num prompt tokens:  {self.prompt_tokens}\n"
            f"Total num output tokens:  {self.output_tokens}"
        )


def measure_throughput(
    llm: Any,
    requests: Sequence[BenchRequest],
    *,
    n: int = 1,
    disable_detokenize: bool = False,
    num_warmups: int = 0,
    use_tqdm: bool = False,
) -> ThroughputResult:
    """Hand all requests to an `LLM` at once and wait for the last one.

    Args:
      llm: an `LLM`.
      requests: at least one.
      n: completions of each prompt.
      disable_detokenize: whether to make no text.
      num_warmups: requests that are run before, and do not count.
      use_tqdm: whether to show progress.

    Raises:
      InvalidValueError: there are no requests.
    """
    _check(requests)
    prompts = [as_prompt(one) for one in requests]
    params = [params_of(one, n, disable_detokenize) for one in requests]
    if num_warmups:
        llm.generate(prompts[:num_warmups], params[:num_warmups], use_tqdm=False)
        llm.reset_prefix_cache()
    before = _Work(llm.stats.num_scheduled_tokens, count_programs(llm.get_metrics()))
    start = time.perf_counter()
    outputs = llm.generate(prompts, params, use_tqdm=use_tqdm)
    elapsed = time.perf_counter() - start
    after = _Work(llm.stats.num_scheduled_tokens, count_programs(llm.get_metrics()))
    return _result(requests, outputs, elapsed, before, after)


async def measure_async_throughput(
    llm: Any,
    requests: Sequence[BenchRequest],
    *,
    n: int = 1,
    disable_detokenize: bool = False,
) -> ThroughputResult:
    """Hand all requests to an `AsyncLLM` at once and wait for the last one.

    Args:
      llm: an `AsyncLLM`.
      requests: at least one.
      n: completions of each prompt.
      disable_detokenize: whether to make no text.

    Raises:
      InvalidValueError: there are no requests.
    """
    _check(requests)

    async def run(one: BenchRequest) -> Any:
        params = params_of(one, n, disable_detokenize)
        last = None
        async for output in llm.generate(as_prompt(one), params):
            last = output
        return last

    before = await _work_of(llm)
    start = time.perf_counter()
    outputs = await asyncio.gather(*map(run, requests))
    elapsed = time.perf_counter() - start
    return _result(requests, outputs, elapsed, before, await _work_of(llm))


def as_prompt(request: BenchRequest) -> Any:
    """Return a request's prompt in the form that an engine takes."""
    if request.token_ids:
        return {"prompt_token_ids": list(request.token_ids)}
    return request.text


def params_of(
    request: BenchRequest, n: int, disable_detokenize: bool
) -> SamplingParams:
    """Return parameters by which an output has the length that is asked for."""
    return SamplingParams(
        n=n,
        temperature=1.0,
        ignore_eos=True,
        max_tokens=request.output_tokens,
        detokenize=not disable_detokenize,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


class _Work(NamedTuple):
    """What an engine has done since its start."""

    tokens: int
    programs: int


async def _work_of(llm: Any) -> _Work:
    stats = await llm.get_stats()
    programs = count_programs(await llm.get_metrics())
    return _Work(stats.num_scheduled_tokens, programs)


def _check(requests: Sequence[BenchRequest]) -> None:
    if not requests:
        raise InvalidValueError("requests", 0, "at least one")


def _result(
    requests: Sequence[BenchRequest],
    outputs: Sequence[Any],
    elapsed: float,
    before: _Work,
    after: _Work,
) -> ThroughputResult:
    return ThroughputResult(
        elapsed_time=elapsed,
        num_requests=len(requests),
        prompt_tokens=sum(len(output.prompt_token_ids) for output in outputs),
        output_tokens=sum(len(c.token_ids) for o in outputs for c in o.outputs),
        computed_tokens=after.tokens - before.tokens,
        compiled_programs=after.programs - before.programs,
    )
