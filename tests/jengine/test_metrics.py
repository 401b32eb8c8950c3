import json

import numpy as np
import pytest

from jengine.metrics import Counter, Gauge, Histogram, to_prometheus

SPREAD = Histogram(
    "vllm:time_to_first_token_seconds",
    {"model_name": "m"},
    7,
    4.5,
    {"0.1": 2, "0.5": 2, "1.0": 6, "+Inf": 7},
)


def test_quantiles_are_those_of_evenly_spread_buckets():
    assert SPREAD.quantile(0.0) == 0.0
    assert SPREAD.quantile(1 / 7) == pytest.approx(0.05)
    assert SPREAD.quantile(2 / 7) == pytest.approx(0.1)
    assert SPREAD.quantile(4 / 7) == pytest.approx(0.75)
    assert SPREAD.quantile(0.99) == 1.0  # beyond the last limit
    assert SPREAD.mean == pytest.approx(4.5 / 7)


def test_quantile_lies_in_the_bucket_of_the_true_one():
    values = np.random.default_rng(0).exponential(1.0, 1000)
    limits = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0]
    buckets = {str(limit): int((values <= limit).sum()) for limit in limits}
    found = Histogram("h", {}, 1000, float(values.sum()), {**buckets, "+Inf": 1000})
    for share in (0.05, 0.5, 0.9, 0.99):
        true = float(np.quantile(values, share))
        index = int(np.searchsorted(limits, true))
        low = limits[index - 1] if index else 0.0
        assert low <= found.quantile(share) <= limits[index]


def test_an_empty_histogram():
    empty = Histogram("h", {}, 0, 0.0, {"1.0": 0, "+Inf": 0})
    assert empty.mean == 0.0
    assert empty.quantile(0.5) == 1.0


def test_text_reads_back_in_prometheus_own_client():
    parser = pytest.importorskip("prometheus_client.parser")
    hard = 'a "name"\\with\nall'
    metrics = [
        Gauge("vllm:kv_cache_usage_perc", {"model_name": hard}, 0.25),
        Counter("vllm:request_success", {"finished_reason": "stop"}, 3),
        Counter("vllm:request_success", {"finished_reason": "length"}, 4),
        Counter("jengine:steps", {}, 5),
        SPREAD,
    ]
    families = {
        one.name: one
        for one in parser.text_string_to_metric_families(to_prometheus(metrics))
    }
    assert {name: one.type for name, one in families.items()} == {
        "vllm:kv_cache_usage_perc": "gauge",
        "vllm:request_success": "counter",
        "jengine:steps": "counter",
        "vllm:time_to_first_token_seconds": "histogram",
    }
    (usage,) = families["vllm:kv_cache_usage_perc"].samples
    assert (usage.labels, usage.value) == ({"model_name": hard}, 0.25)
    ends = families["vllm:request_success"].samples
    assert {s.labels["finished_reason"]: s.value for s in ends} == {
        "stop": 3,
        "length": 4,
    }
    spread = families["vllm:time_to_first_token_seconds"].samples
    buckets = {s.labels["le"]: s.value for s in spread if s.name.endswith("_bucket")}
    assert buckets == SPREAD.buckets
    rest = {s.name.rpartition("_")[2]: s.value for s in spread if "le" not in s.labels}
    assert rest == {"sum": 4.5, "count": 7}


def test_text_of_a_counter():
    assert to_prometheus([Counter("a:b", {"c": "d"}, 1)]) == (
        '# TYPE a:b_total counter\na:b_total{c="d"} 1\n'
    )
    assert to_prometheus([]) == ""


def test_values_are_plain_for_json():
    assert json.dumps(dict(SPREAD.buckets))
