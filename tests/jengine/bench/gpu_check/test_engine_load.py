import numpy as np
import pytest

from jengine.bench.gpu_check.engine_load import (
    EngineSize,
    RunnerProbe,
    greedy,
    random_prompts,
)
from jengine.core.plan import ScheduledRequest, StepPlan, StepResult

SIZE = EngineSize(rows=(2,), token_budget=16, max_model_len=40, num_blocks=7)


def test_there_is_one_size_of_mixed_steps():
    buckets = SIZE.buckets
    assert buckets.rows == (2,)
    assert buckets.tokens == (16,)
    assert buckets.table_widths == (3,)  # 40 tokens in blocks of 16


class Handle:
    out = None


class SlowRunner:
    """Takes 2 s to dispatch and 5 s to collect, by its own clock."""

    now = 0.0

    def dispatch(self, plan, *, awaits_masks=False):
        self.now += 2.0
        return Handle()

    def collect(self, handle):
        self.now += 5.0
        return StepResult(0, ((7,),))

    def reset(self):
        self.now = -1.0


def plan(*counts):
    rows = tuple(
        ScheduledRequest(str(i), i, 4, (1,) * count, False, (), True, None)
        for i, count in enumerate(counts)
    )
    return StepPlan(0, rows, counts.count(1), sum(counts), (), ())


@pytest.fixture
def probe():
    runner = SlowRunner()
    return RunnerProbe(runner, lambda: runner.now)


def test_a_probe_notes_what_each_call_took(probe):
    handle = probe.dispatch(plan(1))
    probe.dispatch(plan(1))
    assert probe.collect(handle).sampled == ((7,),)
    assert (probe.host_s, probe.wait_s) == ([2.0, 2.0], [5.0])
    probe.wait_for_device()  # there is nothing to wait for in the last handle
    probe.reset()
    assert probe.runner.now == -1.0


def test_rows_decode_when_each_runs_one_token(probe):
    assert probe.decoding_rows == 0
    for counts, expected in (((1, 1), 2), ((1, 5), 0), ((1,), 1)):
        probe.dispatch(plan(*counts))
        assert probe.decoding_rows == expected
    probe.forget()
    assert probe.decoding_rows == len(probe.host_s) == len(probe.wait_s) == 0


def test_prompts_are_random_but_for_the_first_ids():
    rng = np.random.default_rng(0)
    prompts = random_prompts(rng, [400, 2], 10)
    assert [len(prompt) for prompt in prompts] == [400, 2]
    assert set(prompts[0]) == set(range(3, 10))


def test_greedy_requests_run_to_their_full_length():
    params = greedy(7, logprobs=2)
    assert (params.temperature, params.max_tokens, params.ignore_eos) == (0, 7, True)
    assert params.logprobs == 2
    assert greedy(7).logprobs is None
