from jengine.core.stats import SchedulerStats
from jengine.metrics import Counter, Gauge, Histogram
from jengine.metrics_recorder import MetricsRecorder
from jengine.metrics_snapshot import snapshot

STATS = SchedulerStats(
    num_steps=1,
    num_scheduled_tokens=2,
    num_preemptions=3,
    prefix_cache_queries=4,
    prefix_cache_hits=5,
    num_running=6,
    num_waiting=7,
    num_blocks_in_use=8,
    num_blocks_cached=9,
    num_blocks=32,
)


def test_what_the_scheduler_and_the_runner_know():
    found = snapshot(
        MetricsRecorder(),
        STATS,
        labels={"engine": "0"},
        num_waiting_for_grammar=10,
        num_programs=11,
    )
    values = {one.name: one.value for one in found if not isinstance(one, Histogram)}
    expected = {
        "vllm:num_requests_running": 6.0,
        "vllm:num_requests_waiting": 17.0,
        "vllm:kv_cache_usage_perc": 0.25,
        "vllm:num_preemptions": 3,
        "vllm:prefix_cache_queries": 4,
        "vllm:prefix_cache_hits": 5,
        "jengine:steps": 1,
        "jengine:scheduled_tokens": 2,
        "jengine:compiled_programs": 11,
    }
    assert expected.items() <= values.items()
    kinds = [type(one) for one in found]
    assert kinds == sorted(kinds, key=[Gauge, Counter, Histogram].index)
    reasons = {
        one.labels["finished_reason"]
        for one in found
        if one.name == "vllm:request_success"
    }
    assert reasons == {"stop", "length", "abort", "error", "repetition"}
