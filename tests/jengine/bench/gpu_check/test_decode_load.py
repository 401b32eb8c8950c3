import itertools

import pytest

from jengine.bench.gpu_check.decode_load import (
    Load,
    LoadTimes,
    context_tokens,
    run_load,
)
from jengine.bench.gpu_check.engine_load import RunnerProbe
from jengine.core.scheduler import Scheduler
from jengine.engine import LLMEngine
from jengine.input_processor import EndTokens, InputLimits, InputProcessor
from jengine.output_processor import OutputProcessor
from jengine.testing.fake_runner import FakeRunner

BLOCKS, BLOCK_SIZE, SEATS, BUDGET = 100, 4, 4, 8
LOAD = Load(batch=4, prompt=9, steps=5, traced=2)


@pytest.fixture
def engine_and_probe():
    """An engine whose runner needs no device."""
    scheduler = Scheduler(
        num_blocks=BLOCKS,
        block_size=BLOCK_SIZE,
        token_budget=BUDGET,
        max_num_seqs=SEATS,
        enable_prefix_caching=False,
    )
    limits = InputLimits(
        vocab_size=50,
        max_model_len=90,
        max_sequence_tokens=scheduler.max_sequence_tokens,
        max_logprobs=0,
        seed=0,
    )
    runner = FakeRunner(
        num_blocks=BLOCKS,
        block_size=BLOCK_SIZE,
        token_budget=BUDGET,
        max_num_seqs=SEATS,
        vocab_size=50,
    )
    probe = RunnerProbe(runner)
    inputs = InputProcessor(limits, EndTokens(None, frozenset()), None)
    return LLMEngine(scheduler, probe, inputs, OutputProcessor(None)), probe


def test_only_steps_in_which_all_decode_are_timed(engine_and_probe):
    engine, probe = engine_and_probe
    ticks = itertools.count()
    for _ in range(2):  # the second finds nothing of the first
        times = run_load(
            engine,
            probe,
            LOAD,
            vocab_size=50,
            token_budget=BUDGET,
            clock=lambda: float(next(ticks)),
        )
        assert len(times.step_s) == len(times.host_s) == len(times.wait_s) == 5
        assert times.step_s == [1.0] * 5
        assert times.prefill_s == 1.0
        # Each has at least its prompt, what it said while others arrived, and warm-up.
        assert times.context > LOAD.batch * (LOAD.prompt + 4)
        assert "profile" in times.profile  # there is no GPU to trace
        assert not engine.has_unfinished_requests()
    engine.check_invariants()


def test_the_first_request_outlasts_the_arrival_of_the_last():
    assert LOAD.max_tokens(8) >= 2 * 5 + 4 + 5 + 2
    assert LOAD.max_tokens(10**6) >= 4 + 5 + 2


def test_fields_are_medians_and_the_gap_is_what_the_device_was_not_busy():
    profile = {"device_busy_s_per_step": 0.5, "launches_per_step": 100.0}
    times = LoadTimes(
        prefill_s=3.0,
        step_s=[4.0, 2.0, 1.0],
        host_s=[0.5, 0.25, 0.125],
        wait_s=[1.0, 9.0, 2.0],
        context=77,
        profile=profile,
    )
    found = times.fields(8)
    assert (found["seconds"], found["fastest_s"], found["slowest_s"]) == (2, 1, 4)
    assert found["tokens_per_s"] == 4.0
    assert found["host_gap_s"] == 1.5
    assert (found["dispatch_s"], found["wait_s"]) == (0.25, 2.0)
    assert found["launches_per_step"] == 100.0
    assert times._replace(profile={"profile": "none"}).fields(8)["host_gap_s"] is None


def test_no_plan_has_no_context():
    assert context_tokens(None) == 0
