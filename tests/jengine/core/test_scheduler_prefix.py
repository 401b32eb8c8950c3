"""Prefix hits as the scheduler sees them; the answers come from the fake runner."""

import pytest

from jengine.core.request import FinishReason, Request
from jengine.core.scheduler import Scheduler
from jengine.testing.fake_runner import FakeRunner


class Bench:
    """A scheduler and a runner in step."""

    def __init__(self, **changes):
        sizes = {
            "num_blocks": 50,
            "block_size": 4,
            "token_budget": 64,
            "max_num_seqs": 8,
        }
        sizes |= changes
        self.scheduler = Scheduler(**sizes)
        sizes.pop("enable_prefix_caching", None)
        self.runner = FakeRunner(**sizes)

    def ask(self, name, ids, output=4, **options):
        request = Request(name, ids, max_total_tokens=len(ids) + output, **options)
        self.scheduler.add(request)
        return request

    def step(self):
        plan = self.scheduler.schedule()
        result = self.runner.collect(self.runner.dispatch(plan))
        self.scheduler.update(plan, result)
        self.scheduler.check_invariants()
        return plan

    def run(self, name, ids, output=4, **options):
        """Run a request to its end; returns it and its first row."""
        request = self.ask(name, ids, output, **options)
        first = self.step().rows[0]
        while not request.is_finished:
            self.step()
        return request, first


PREFIX = list(range(1, 9))


def test_f4_the_second_prompt_hits_two_blocks_and_reuses_the_unhashed_one():
    # Policy: freed blocks without a hash go to the front of the free list.
    bench = Bench()
    first, row = bench.run("first", [*PREFIX, 9, 10, 2], 7)
    assert row.new_block_ids == (1, 2, 3)
    assert bench.scheduler.stats.num_blocks_cached == 4  # 17 tokens run
    second, row = bench.run("second", [*PREFIX, 12, 10, 2])
    assert row.new_block_ids == (1, 2, 5)
    assert row.token_ids == (12, 10, 2)
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, 8)


@pytest.mark.parametrize("length", [1, 3, 4, 5, 7, 8, 9, 12])
def test_cor_01_c2_1_a_full_hit_leaves_at_least_a_token_to_run(length):
    bench = Bench()
    prompt = list(range(10, 10 + length))
    once, _ = bench.run("once", prompt)
    twice, row = bench.run("twice", prompt)
    assert twice.num_cached_tokens == 4 * ((length - 1) // 4)
    assert row.num_tokens == length - twice.num_cached_tokens > 0
    assert twice.token_ids == once.token_ids


def test_cor_02_equal_second_blocks_under_different_first_ones_are_no_hit():
    bench = Bench()
    bench.run("one", [1, 2, 3, 4, 5, 6, 7, 8, 9])
    other, _ = bench.run("other", [0, 2, 3, 4, 5, 6, 7, 8, 9])
    assert other.num_cached_tokens == 0


def test_c2_2_hit_blocks_that_are_free_do_not_count_as_free_blocks():
    bench = Bench(num_blocks=5)
    bench.run("a", [*range(8)], 1)  # two cached blocks, two others
    bench.ask("b", [*range(20, 24)], 1)
    bench.ask("c", [*range(8), 9, 10, 11, 12, 13], 1)  # 2 hits and 2 new
    plan = bench.step()
    assert [row.request_id for row in plan.rows] == ["b"]
    (row,) = bench.step().rows
    assert (row.request_id, row.num_computed_tokens) == ("c", 8)


def test_c2_4_c2_7_two_equal_prompts_in_one_step_share_full_blocks():
    bench = Bench()
    one, other = bench.ask("one", PREFIX), bench.ask("other", PREFIX)
    rows = bench.step().rows
    assert [row.new_block_ids for row in rows] == [(1, 2), (1, 3)]
    assert [row.num_tokens for row in rows] == [8, 4]
    while bench.scheduler.num_unfinished:
        bench.step()
    assert one.token_ids == other.token_ids


def test_c2_6_tokens_that_the_host_does_not_know_are_not_registered():
    bench = Bench(block_size=1)
    bench.ask("a", [5])
    plan = bench.scheduler.schedule()
    ahead = bench.scheduler.schedule()
    assert ahead.rows[0].carries
    assert bench.scheduler.stats.num_blocks_cached == 1
    result = bench.runner.collect(bench.runner.dispatch(plan))
    bench.scheduler.update(plan, result)
    bench.runner.dispatch(ahead)
    bench.scheduler.schedule()
    assert bench.scheduler.stats.num_blocks_cached == 2


def test_c2_10_salts_keep_requests_apart():
    bench = Bench()
    cached = []
    for name, salt in (("a", None), ("b", "x"), ("c", "y"), ("d", "x"), ("e", None)):
        request, _ = bench.run(name, [*PREFIX, 9], cache_salt=salt)
        cached.append(request.num_cached_tokens)
    assert cached == [0, 0, 0, 8, 8]


def test_c2_13_the_cache_is_reset_only_while_nothing_runs():
    bench = Bench()
    bench.run("a", [*PREFIX, 9])
    bench.ask("b", [*PREFIX, 9])
    bench.step()
    assert not bench.scheduler.reset_prefix_cache()
    bench.scheduler.finish(["b"], FinishReason.ABORT)
    assert bench.scheduler.reset_prefix_cache()
    request, _ = bench.run("c", [*PREFIX, 9])
    assert request.num_cached_tokens == 0


def test_c2_14_hits_are_counted_once_at_first_admission():
    bench = Bench(num_blocks=5)
    bench.run("warm", [*PREFIX, 9], 1)
    bench.ask("old", [*range(20, 27)], 6)
    young = bench.ask("young", [*PREFIX, 9], 4)
    for _ in range(3):  # "young" does not fit and is looked up each time
        bench.step()
    assert young.num_cached_tokens is None
    while bench.scheduler.num_unfinished:
        bench.step()
    stats = bench.scheduler.stats
    assert stats.prefix_cache_queries == 9 + 7 + 9
    assert stats.prefix_cache_hits == young.num_cached_tokens


def test_c2_15_cached_tokens_are_those_of_the_first_admission():
    bench = Bench(num_blocks=5)
    bench.ask("old", [*range(20, 27)], 9)
    young = bench.ask("young", [*PREFIX], 5)
    while bench.scheduler.stats.num_preemptions == 0:
        bench.step()
    assert bench.scheduler.stats.num_running == 1
    while bench.scheduler.num_unfinished:
        bench.step()
    assert young.num_cached_tokens == 0
    assert bench.scheduler.stats.prefix_cache_hits == 0


def test_cor_03_a_preempted_request_resumes_on_what_is_left_of_its_blocks():
    bench = Bench(num_blocks=6)
    old = bench.ask("old", [*range(20, 27)], 6)
    bench.ask("young", [*PREFIX, 9], 6)
    rows = []
    while bench.scheduler.num_unfinished:
        rows += bench.step().rows
    resumed = [r for r in rows if r.request_id == "young" and r.options is not None]
    assert [r.num_computed_tokens > 0 for r in resumed] == [False, True]
    assert old.is_finished


def test_without_prefix_caching_nothing_is_kept():
    bench = Bench(enable_prefix_caching=False)
    for name in "ab":
        request, _ = bench.run(name, [*PREFIX, 9])
        assert request.num_cached_tokens == 0
    assert bench.scheduler.stats.num_blocks_cached == 0
