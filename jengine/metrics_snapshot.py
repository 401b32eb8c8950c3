"""All metrics of an engine at one moment, under vLLM's names where vLLM has them."""

from collections.abc import Iterator, Mapping

from jengine.core.stats import SchedulerStats
from jengine.metrics import Counter, Gauge, Metric, Metrics
from jengine.metrics_recorder import MetricsRecorder, Totals


def snapshot(
    recorder: MetricsRecorder,
    stats: SchedulerStats,
    *,
    labels: Mapping[str, str],
    num_waiting_for_grammar: int = 0,
    num_programs: int = 0,
) -> Metrics:
    """Return gauges, counters and histograms, in this order.

    Args:
      recorder: of the engine.
      stats: of its scheduler.
      labels: of every metric.
      num_waiting_for_grammar: requests that the scheduler does not know yet.
      num_programs: compiled so far.
    """
    totals = recorder.totals()
    waiting = stats.num_waiting + num_waiting_for_grammar
    used = stats.num_blocks_in_use / max(1, stats.num_blocks)
    gauges = {
        "vllm:num_requests_running": stats.num_running,
        "vllm:num_requests_waiting": waiting,
        "vllm:kv_cache_usage_perc": used,
    }
    found = Metrics(Gauge(n, labels, float(v)) for n, v in gauges.items())
    found += _counters(totals, stats, labels, num_programs)
    found += [spread.value(n, labels) for n, spread in recorder.spreads.items()]
    return found


def _counters(
    totals: Totals,
    stats: SchedulerStats,
    labels: Mapping[str, str],
    num_programs: int,
) -> Iterator[Metric]:
    computed = totals.prompt_tokens - totals.cached_prompt_tokens
    sources = {
        "local_compute": computed,
        "local_cache_hit": totals.cached_prompt_tokens,
    }
    plain = {
        "vllm:prompt_tokens": totals.prompt_tokens,
        "vllm:prompt_tokens_cached": totals.cached_prompt_tokens,
        "vllm:generation_tokens": totals.generation_tokens,
        "vllm:num_preemptions": stats.num_preemptions,
        "vllm:prefix_cache_queries": stats.prefix_cache_queries,
        "vllm:prefix_cache_hits": stats.prefix_cache_hits,
        "jengine:steps": stats.num_steps,
        "jengine:scheduled_tokens": stats.num_scheduled_tokens,
        "jengine:compiled_programs": num_programs,
    }
    for name, value in plain.items():
        yield Counter(name, labels, value)
    for source, value in sources.items():
        yield Counter(
            "vllm:prompt_tokens_by_source", {**labels, "source": source}, value
        )
    for reason, value in totals.ended.items():
        yield Counter(
            "vllm:request_success", {**labels, "finished_reason": reason}, value
        )
