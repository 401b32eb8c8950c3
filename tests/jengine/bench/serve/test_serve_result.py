import json

import numpy as np
import pytest

from jengine.bench.serve.outcome import Outcome
from jengine.bench.serve.serve_result import detailed, make_result

OUTCOMES = [
    Outcome(
        prompt_tokens=10,
        output_tokens=4,
        start_s=0.0,
        ttft_s=0.5,
        itl_s=(0.1, 0.2, 0.3),
        latency_s=1.1,
        text="abcd",
    ),
    Outcome(prompt_tokens=20, output_tokens=1, start_s=0.25, ttft_s=1.0, latency_s=1.0),
    Outcome(  # two pieces that held five tokens
        prompt_tokens=30,
        output_tokens=5,
        start_s=2.0,
        ttft_s=0.25,
        itl_s=(0.4,),
        latency_s=0.65,
    ),
    Outcome(prompt_tokens=99, output_tokens=9, start_s=0.0, error="refused"),
]


def test_figures_by_hand():
    found = make_result(OUTCOMES, 4.0, percents=[50.0, 99.0])
    assert (found.completed, found.failed) == (3, 1)
    assert (found.total_input, found.total_output) == (60, 10)
    assert found.rates() == {
        "request_throughput": 0.75,
        "output_throughput": 2.5,
        "total_token_throughput": 17.5,
    }
    ttft = found.summaries["ttft"]
    assert ttft.mean == pytest.approx(np.mean([0.5, 1.0, 0.25]))
    assert dict(ttft.percentiles)[99.0] == pytest.approx(
        np.percentile([0.5, 1.0, 0.25], 99)
    )
    # 0.6 s for three tokens after the first, 0.4 s for four; the one-token request
    # is left out.
    assert found.summaries["tpot"].mean == pytest.approx((0.2 + 0.1) / 2)
    assert found.summaries["itl"].mean == pytest.approx(np.mean([0.1, 0.2, 0.3, 0.4]))
    assert found.summaries["e2el"].median == 1.0


def test_peaks_by_second():
    found = make_result(OUTCOMES, 4.0)
    # Seconds 0, 1, 2: pieces at 0.5 0.6 0.8 | 1.1 1.25 | 2.25 2.65.
    assert found.peak_output_rate == 3
    assert found.peak_concurrency == 2
    assert make_result([], 1.0).peak_output_rate == 0


def test_goodput_counts_a_single_token_as_fast():
    assert make_result(OUTCOMES, 4.0).good is None
    assert make_result(OUTCOMES, 4.0, slos={"ttft": 0.5}).good == 2
    assert make_result(OUTCOMES, 4.0, slos={"tpot": 0.1}).good == 2
    assert make_result(OUTCOMES, 4.0, slos={"tpot": 0.1, "e2el": 0.9}).good == 1
    rates = make_result(OUTCOMES, 4.0, slos={"ttft": 0.5}).rates()
    assert rates["request_goodput"] == 0.5


def test_names_in_json_are_those_of_vllm():
    found = make_result(OUTCOMES, 4.0, percents=[99.0, 99.9], slos={"ttft": 0.5})
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["completed"] == 3
    assert plain["mean_ttft_ms"] == pytest.approx(583.33, abs=0.01)
    assert {"median_itl_ms", "std_tpot_ms", "p99_e2el_ms", "p99.9_ttft_ms"} <= set(
        plain
    )
    assert plain["request_goodput"] == 0.5
    assert plain["max_concurrent_requests"] == 2


def test_every_request_in_detail():
    found = json.loads(json.dumps(detailed(OUTCOMES)))
    assert found["itls"] == [[0.1, 0.2, 0.3], [], [0.4], []]
    assert found["errors"] == ["", "", "", "refused"]
    assert found["generated_texts"][0] == "abcd"
    assert {len(values) for values in found.values()} == {4}


def test_nothing_succeeded():
    found = make_result(OUTCOMES[3:], 1.0, slos={"ttft": 1.0})
    assert (found.completed, found.failed, found.good) == (0, 1, 0)
    assert found.summaries["ttft"].mean == 0.0
