import dataclasses

from jengine.core.request import Request
from jengine.core.scheduler import Scheduler
from jengine.core.stats import SchedulerCounters, SchedulerStats
from jengine.testing.fake_runner import FakeRunner


def test_every_counter_is_a_statistic():
    counters = [field.name for field in dataclasses.fields(SchedulerCounters)]
    assert counters == list(SchedulerStats._fields[: len(counters)])
    assert set(dataclasses.asdict(SchedulerCounters()).values()) == {0}


def test_statistics_follow_a_run():
    sizes = {"num_blocks": 5, "block_size": 4, "token_budget": 16, "max_num_seqs": 2}
    scheduler, runner = Scheduler(**sizes), FakeRunner(**sizes)
    for name in "abc":
        scheduler.add(Request(name, list(range(7)), max_total_tokens=10))
    found = []
    tokens = steps = 0
    while scheduler.num_unfinished:
        plan = scheduler.schedule()
        tokens += plan.num_tokens
        steps += bool(plan.rows)
        found.append(scheduler.stats)
        scheduler.update(plan, runner.collect(runner.dispatch(plan)))
    first, last = found[0], scheduler.stats
    assert (first.num_running, first.num_waiting, first.num_blocks_in_use) == (2, 1, 3)
    assert (last.num_running, last.num_waiting, last.num_blocks_in_use) == (0, 0, 0)
    assert (last.num_steps, last.num_scheduled_tokens) == (steps, tokens)
    assert last.num_blocks == 4
    assert last.num_preemptions > 0
    assert last.prefix_cache_queries == 21
    assert last.prefix_cache_hits >= 4
    assert 0 < last.num_blocks_cached <= 4
