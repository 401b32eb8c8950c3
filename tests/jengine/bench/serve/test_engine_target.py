import asyncio

import pytest

from jengine import AsyncLLM, SamplingParams
from jengine.bench.bench_request import BenchRequest
from jengine.bench.serve.engine_target import EngineTarget
from jengine.bench.serve.load import run_load
from jengine.bench.serve.target import Target

PARAMS = SamplingParams(temperature=0, ignore_eos=True, stop=["x"])


def run(engine, requests):
    async def load():
        with AsyncLLM.from_engine(engine) as llm:
            target = EngineTarget(llm, PARAMS)
            assert isinstance(target, Target)
            return await run_load(target, requests, [0.0] * len(requests))

    return asyncio.run(load()).outcomes


def request(ids, output_tokens):
    return BenchRequest(
        token_ids=tuple(ids), prompt_tokens=len(ids), output_tokens=output_tokens
    )


def test_outputs_are_read_token_by_token(make_engine):
    one, other = run(make_engine(), [request([1, 2, 3], 5), request([4], 1)])
    assert (one.prompt_tokens, one.output_tokens) == (3, 5)
    assert len(one.itl_s) <= 4  # a reader that is late gets several in one piece
    assert len(one.text) == 5
    assert one.error is None
    assert one.latency_s == pytest.approx(one.ttft_s + sum(one.itl_s))
    assert (other.output_tokens, other.itl_s) == (1, ())
    assert other.latency_s == other.ttft_s > 0


def test_a_refused_request_is_an_outcome(make_engine):
    bad, good = run(make_engine(), [request([99], 2), request([1], 2)])
    assert bad.error is not None
    assert "99" in bad.error
    assert good.error is None
