"""The recorder in an engine without a model, by a clock that the test sets."""

import itertools

import pytest

from jengine import RequestOutputKind, SamplingParams
from jengine.core.request import Request
from jengine.metrics_recorder import MetricsRecorder


class Clock:
    """Seconds that pass only when a test says so."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def engine(make_engine, clock):
    """One token a step and request, each step read at once; a second a step."""
    return make_timed(make_engine, clock, ahead=False)


def make_timed(make_engine, clock, **options):
    recorder = MetricsRecorder(clock, wall_clock=lambda: 5000.0)
    engine = make_engine(metrics=recorder, **options)
    collect = engine.runner.collect

    def slow_collect(handle):
        clock.now += 1.0
        return collect(handle)

    engine.runner.collect = slow_collect
    return engine


def params(count, **options):
    return SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, **options)


def spread(engine, name):
    (found,) = [one for one in engine.get_metrics() if one.name == name]
    return found


def counter(engine, name, **labels):
    (found,) = [
        one
        for one in engine.get_metrics()
        if one.name == name and labels.items() <= one.labels.items()
    ]
    return found.value


def run(engine):
    outputs = {}
    while engine.has_unfinished_requests():
        for output in engine.step():
            outputs[output.request_id] = output
    return outputs


def test_the_times_of_one_request(engine, clock):
    engine.add_request("a", [1, 2, 3], params(4))
    clock.now += 10.0
    times = run(engine)["a"].metrics
    assert times.arrival_time == 5000.0
    assert times.queued_ts == 100.0
    assert times.scheduled_ts == 110.0
    assert times.first_token_ts == 111.0
    assert times.last_token_ts == 114.0
    assert times.first_token_latency == 11.0
    assert times.num_generation_tokens == 4
    sums = {
        "vllm:time_to_first_token_seconds": (1, 11.0),
        "vllm:inter_token_latency_seconds": (3, 3.0),
        "vllm:request_time_per_output_token_seconds": (1, 1.0),
        "vllm:e2e_request_latency_seconds": (1, 14.0),
        "vllm:request_queue_time_seconds": (1, 10.0),
        "vllm:request_prefill_time_seconds": (1, 1.0),
        "vllm:request_decode_time_seconds": (1, 3.0),
        "vllm:request_inference_time_seconds": (1, 4.0),
        "vllm:request_prompt_tokens": (1, 3.0),
        "vllm:request_generation_tokens": (1, 4.0),
        "vllm:request_params_n": (1, 1.0),
        "vllm:request_params_max_tokens": (1, 4.0),
        "vllm:request_prefill_kv_computed_tokens": (1, 3.0),
        "vllm:iteration_tokens_total": (4, 6.0),
    }
    for name, (count, total) in sums.items():
        found = spread(engine, name)
        assert (name, found.count, found.sum) == (name, count, total)


def test_intervals_of_rows_that_come_and_go(engine, clock):
    engine.add_request("a", [1], params(5))
    engine.step()  # a: 1
    engine.add_request("b", [2], params(2))
    run(engine)  # a and b: 2 steps, then a alone
    assert spread(engine, "vllm:time_to_first_token_seconds").count == 2
    found = spread(engine, "vllm:inter_token_latency_seconds")
    assert (found.count, found.sum) == (4 + 1, 5.0)
    assert counter(engine, "vllm:generation_tokens") == 7
    assert counter(engine, "vllm:request_success", finished_reason="length") == 2


def test_a_preempted_request_has_one_first_token_and_long_intervals(make_engine, clock):
    engine = make_timed(make_engine, clock, ahead=False, num_blocks=8)
    for name in "abc":
        engine.add_request(name, [ord(name) - 97] * 5, params(9))
    outputs = run(engine)
    assert counter(engine, "vllm:num_preemptions") > 0
    assert spread(engine, "vllm:time_to_first_token_seconds").count == 3
    intervals = spread(engine, "vllm:inter_token_latency_seconds")
    assert intervals.count == 3 * 8
    lives = [
        o.metrics.last_token_ts - o.metrics.first_token_ts for o in outputs.values()
    ]
    assert intervals.sum == pytest.approx(sum(lives))
    assert intervals.sum > 3 * 8 * 1.0  # who waited got tokens later


@pytest.mark.parametrize("ahead", [False, True])
def test_counters_equal_what_users_got(make_engine, clock, ahead):
    engine = make_timed(make_engine, clock, ahead=ahead, num_blocks=12)
    prompts = [[i % 7, 3, 1] * (1 + i % 4) for i in range(12)]
    kind = RequestOutputKind.FINAL_ONLY  # all completions in one output
    for number, prompt in enumerate(prompts):
        engine.add_request(
            str(number),
            prompt,
            params(1 + number % 5, n=1 + number % 2, output_kind=kind),
        )
    outputs = run(engine)
    tokens = [len(one.token_ids) for o in outputs.values() for one in o.outputs]
    asked = [len(p) * (1 + i % 2) for i, p in enumerate(prompts)]
    assert counter(engine, "vllm:generation_tokens") == sum(tokens)
    assert counter(engine, "vllm:prompt_tokens") == sum(asked)
    cached = counter(engine, "vllm:prompt_tokens_cached")
    assert cached == counter(engine, "vllm:prefix_cache_hits")
    by_source = [
        counter(engine, "vllm:prompt_tokens_by_source", source=source)
        for source in ("local_compute", "local_cache_hit")
    ]
    assert by_source == [sum(asked) - cached, cached]
    intervals = spread(engine, "vllm:inter_token_latency_seconds")
    assert intervals.count == sum(tokens) - len(tokens)
    assert spread(engine, "vllm:e2e_request_latency_seconds").count == len(tokens)
    steps = counter(engine, "jengine:steps")
    assert spread(engine, "vllm:iteration_tokens_total").count == steps
    assert all(
        one.value == 0.0
        for one in engine.get_metrics()
        if one.name in ("vllm:num_requests_running", "vllm:num_requests_waiting")
    )


def test_aborted_requests_are_counted_and_forgotten(engine):
    engine.add_request("a", [1, 2], params(9))
    engine.add_request("b", [1, 2], params(9))
    engine.step()
    engine.abort_request(["a", "b", "unknown"])
    assert counter(engine, "vllm:request_success", finished_reason="abort") == 2
    assert spread(engine, "vllm:e2e_request_latency_seconds").count == 0
    assert counter(engine, "vllm:generation_tokens") == 2
    assert engine._metrics._live == set()


def test_stop_strings_end_a_request_in_their_step(engine, clock):
    engine.add_request("a", [1, 2, 3], params(20))
    first = run(engine)["a"].outputs[0].text
    engine.add_request("b", [1, 2, 3], params(20, stop=[first[3]]))
    output = run(engine)["b"]
    got = len(output.outputs[0].token_ids)
    assert got < 20
    assert output.metrics.num_generation_tokens == got
    assert output.metrics.last_token_ts == clock.now
    assert counter(engine, "vllm:request_success", finished_reason="stop") == 1


def test_streamed_outputs_carry_times(engine):
    kind = RequestOutputKind.DELTA
    engine.add_request("a", [1, 2, 3], params(3, output_kind=kind))
    outputs = []
    while engine.has_unfinished_requests():
        outputs += engine.step()
    assert [output.metrics.first_token_latency for output in outputs] == [1.0] * 3
    assert outputs[-1].metrics.num_generation_tokens == 3


def test_host_and_device_time_of_steps_one_after_another(engine, clock):
    """Each step: 0.25 s to plan, 0.5 s to start, 1 s until its result is there."""
    schedule, dispatch = engine._scheduler.schedule, engine.runner.dispatch

    def slow_schedule():
        clock.now += 0.25
        return schedule()

    def slow_dispatch(*args, **options):
        clock.now += 0.5
        return dispatch(*args, **options)

    engine._scheduler.schedule = slow_schedule
    engine.runner.dispatch = slow_dispatch
    engine.add_request("a", [1], params(4))
    run(engine)
    host = spread(engine, "jengine:step_host_seconds")
    assert (host.count, host.mean) == (4, 0.75)
    wait = spread(engine, "jengine:step_wait_seconds")
    assert (wait.count, wait.mean) == (4, 1.0)
    device = spread(engine, "jengine:step_device_seconds")
    assert (device.count, device.mean) == (4, 1.0)


def test_device_time_one_step_ahead_tiles_the_run(make_engine, clock):
    engine = make_timed(make_engine, clock, ahead=True)
    engine.add_request("a", [1], params(6))
    start = clock.now
    run(engine)
    device = spread(engine, "jengine:step_device_seconds")
    assert device.sum == clock.now - start
    assert device.count == 6
    assert spread(engine, "jengine:step_host_seconds").sum == 0.0


def test_a_request_that_recovery_revives_is_not_settled_early(clock):
    recorder = MetricsRecorder(clock)
    request = Request("a", [1], max_total_tokens=9)
    recorder.added([request], 8, 1)
    recorder.ended(request)  # and taken back before the step was over
    totals = recorder.totals()
    assert sum(totals.ended.values()) == 0
    assert recorder._live == {request}


def test_names_are_unique_and_labelled(engine):
    metrics = engine.get_metrics("some/model")
    keys = [(one.name, *sorted(one.labels.items())) for one in metrics]
    assert len(set(keys)) == len(keys)
    for one in metrics:
        assert one.name.startswith(("vllm:", "jengine:"))
        assert one.labels["model_name"] == "some/model"
        assert one.labels["engine"] == "0"


def test_gauges_of_a_running_engine(engine):
    for number in range(7):
        engine.add_request(str(number), [number] * 3, params(5))
    engine.step()
    gauges = {one.name: one.value for one in itertools.islice(engine.get_metrics(), 3)}
    stats = engine.stats
    assert gauges == {
        "vllm:num_requests_running": 5.0,
        "vllm:num_requests_waiting": 2.0,
        "vllm:kv_cache_usage_perc": stats.num_blocks_in_use / stats.num_blocks,
    }
