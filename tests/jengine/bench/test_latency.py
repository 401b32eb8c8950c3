import types

import pytest

from jengine.bench.latency import LatencyResult, measure_latency


class FakeLLM:
    """Takes note of what it is asked."""

    def __init__(self):
        self.config = types.SimpleNamespace(vocab_size=30)
        self.calls = []

    def generate(self, prompts, params, use_tqdm):
        self.calls.append((prompts, params, use_tqdm))


def test_warm_up_does_not_count():
    llm, seen = FakeLLM(), []
    result = measure_latency(
        llm,
        input_len=4,
        output_len=6,
        batch_size=3,
        n=2,
        num_iters_warmup=2,
        num_iters=5,
        disable_detokenize=True,
        on_iteration=lambda: seen.append(1),
    )
    assert len(llm.calls) == len(seen) == 7
    assert len(result.latencies) == 5
    prompts, params, use_tqdm = llm.calls[0]
    assert [len(p["prompt_token_ids"]) for p in prompts] == [4, 4, 4]
    assert {i for p in prompts for i in p["prompt_token_ids"]} <= set(range(30))
    assert (params.max_tokens, params.n, params.ignore_eos) == (6, 2, True)
    assert params.detokenize is False
    assert use_tqdm is False


def test_figures():
    latencies = tuple(float(i) for i in range(1, 102))
    result = LatencyResult(input_len=1, output_len=1, batch_size=1, latencies=latencies)
    assert result.mean == 51.0
    assert dict(result.percentiles) == {10: 11, 25: 26, 50: 51, 75: 76, 90: 91, 99: 100}
    assert str(result).splitlines()[:2] == [
        "Avg latency: 51.0 seconds",
        "10% percentile latency: 11.0 seconds",
    ]
    plain = result.to_dict()
    assert plain["avg_latency"] == 51.0
    assert plain["percentiles"]["99"] == 100.0
    assert plain["latencies"] == pytest.approx(list(latencies))
