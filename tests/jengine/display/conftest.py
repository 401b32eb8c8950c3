"""Runs to look at: a scheduler, a runner that draws made-up tokens, and a recorder."""

import pytest

from jengine.core.request import Request
from jengine.core.scheduler import Scheduler
from jengine.recording import Recorder
from jengine.testing.fake_runner import FakeRunner


@pytest.fixture
def play():
    return _play


def _play(prompts, *, num_new_tokens=6, watch=lambda scheduler: None, **options):
    """Run prompts, by name; return the run and the scheduler."""
    sizes = {"num_blocks": 40, "block_size": 4, "token_budget": 16, "max_num_seqs": 4}
    sizes |= {key: options.pop(key) for key in sizes.keys() & options.keys()}
    scheduler, runner = Scheduler(**sizes, **options), FakeRunner(**sizes)
    recorder = Recorder(scheduler.cache)
    for name, prompt in prompts.items():
        total = len(prompt) + num_new_tokens
        scheduler.add(Request(name, prompt, max_total_tokens=total))
    while scheduler.num_unfinished:
        plan = scheduler.schedule()
        recorder.planned(plan)
        if plan.rows:
            watch(scheduler)
            result = runner.collect(runner.dispatch(plan))
            recorder.learnt(result)
            scheduler.update(plan, result)
    return recorder.run, scheduler
