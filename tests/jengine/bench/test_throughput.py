import asyncio

import pytest

from jengine import AsyncLLM
from jengine.bench.bench_request import BenchRequest
from jengine.bench.throughput import (
    ThroughputResult,
    measure_async_throughput,
    measure_throughput,
)
from jengine.errors import InvalidValueError

REQUESTS = [
    BenchRequest(token_ids=(1, 2, 3), prompt_tokens=3, output_tokens=4),
    BenchRequest(token_ids=(4, 5), prompt_tokens=2, output_tokens=6),
]


def test_an_engine_is_measured(make_llm, f2_dir):
    llm = make_llm(f2_dir)
    result = measure_throughput(llm, REQUESTS, n=2, num_warmups=1)
    assert result.elapsed_time > 0
    assert (result.num_requests, result.prompt_tokens) == (2, 5)
    assert result.output_tokens == 2 * (4 + 6)
    # Both completions compute their prompt; the last token of each is never run.
    assert result.computed_tokens == 2 * (3 + 3 + 2 + 5)


def test_an_engine_on_a_thread_is_measured(make_engine):
    async def run():
        with AsyncLLM.from_engine(make_engine()) as llm:
            return await measure_async_throughput(llm, REQUESTS)

    result = asyncio.run(run())
    assert (result.num_requests, result.prompt_tokens) == (2, 5)
    assert result.output_tokens == 10
    assert result.computed_tokens == 3 + 3 + 2 + 5


def test_figures():
    result = ThroughputResult(
        elapsed_time=2.0,
        num_requests=5,
        prompt_tokens=100,
        output_tokens=50,
        computed_tokens=120,
    )
    assert str(result) == (
        "Throughput: 2.50 requests/s, 75.00 total tokens/s, 25.00 output tokens/s\n"
        "Total num prompt tokens:  100\n"
        "Total num output tokens:  50"
    )
    plain = result.to_dict()
    assert plain["tokens_per_second"] == 75.0
    assert plain["total_num_tokens"] == 150


def test_nothing_to_measure(make_engine):
    with pytest.raises(InvalidValueError, match="at least one"):
        measure_throughput(None, [])
