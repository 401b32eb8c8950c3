"""Queues, budget, preemption and endings; prefix hits are in the next file."""

import subprocess
import sys

import pytest

from jengine.core.plan import StepResult
from jengine.core.request import FinishReason, Request, RequestStatus
from jengine.core.scheduler import Scheduler


def make(**changes):
    sizes = {
        "num_blocks": 50,
        "block_size": 4,
        "token_budget": 64,
        "max_num_seqs": 8,
        "enable_prefix_caching": False,
    }
    return Scheduler(**sizes | changes)


def ask(scheduler, name, prompt, output=8, **options):
    """Add a request; a number stands for a prompt of that many tokens."""
    ids = list(range(100, 100 + prompt)) if isinstance(prompt, int) else prompt
    options.setdefault("arrival", scheduler.num_unfinished)
    request = Request(name, ids, max_total_tokens=len(ids) + output, **options)
    scheduler.add(request)
    return request


def result_of(plan, token=7):
    return StepResult(
        plan.step, tuple((token,) if r.samples else () for r in plan.rows)
    )


def step(scheduler, token=7):
    plan = scheduler.schedule()
    scheduler.update(plan, result_of(plan, token))
    scheduler.check_invariants()
    return plan


def shares(plan):
    return {row.request_id: row.num_tokens for row in plan.rows}


def test_the_host_side_loads_neither_numpy_nor_jax():
    code = (
        "import sys, jengine.core.scheduler;"
        "assert not {'numpy', 'jax', 'flax'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_num_seqs": 0}, "max_num_seqs is 0"),
        ({"token_budget": 7}, "the token budget 7"),
        ({"policy": "lifo"}, "policy is 'lifo'"),
        ({"num_blocks": 1}, "num_blocks is 1"),
        ({"block_size": 0}, "block_size is 0"),
        ({"long_prefill_token_threshold": -1}, "threshold -1"),
    ],
)
def test_impossible_limits_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make(**changes)


def test_f1_three_prompts_then_one_token_each():
    scheduler = make()
    a, b, c = [1, 2, 3, 4, 5], [1, 6, 5, 7, 8, 9, 10], [1, 12, 13]
    for name, prompt in zip("ABC", (a, b, c), strict=True):
        ask(scheduler, name, prompt)
    plan = step(scheduler)
    assert plan.num_tokens == 15
    assert [row.new_block_ids for row in plan.rows] == [(1, 2), (3, 4), (5,)]
    assert [row.token_ids for row in plan.rows] == [tuple(a), tuple(b), tuple(c)]
    plan = step(scheduler)
    assert (plan.num_tokens, plan.num_single_token_rows) == (3, 3)
    assert [row.num_computed_tokens for row in plan.rows] == [5, 7, 3]
    assert [row.new_block_ids for row in plan.rows] == [(), (), ()]


def test_f3_chunks_of_a_long_prompt():
    scheduler = make(long_prefill_token_threshold=8)
    ask(scheduler, "long", 18)
    blocks, rows = [], []
    for _ in range(3):
        plan = step(scheduler)
        rows += plan.rows
        blocks.append(scheduler.stats.num_blocks_in_use)
    assert [row.num_tokens for row in rows] == [8, 8, 2]
    assert blocks == [2, 4, 5]
    assert [row.samples for row in rows] == [False, False, True]


def test_c1_2_waiting_is_left_alone_in_a_step_that_preempts():
    scheduler = make(num_blocks=4, policy="priority")
    ask(scheduler, "first", 4, priority=1)
    ask(scheduler, "victim", 5, priority=5)
    step(scheduler)
    ask(scheduler, "urgent", 1, 1, priority=0)
    plan = step(scheduler)
    assert plan.preempted_ids == ("victim",)  # a block is left over for "urgent"
    assert shares(plan) == {"first": 1}
    assert shares(step(scheduler)) == {"first": 1, "urgent": 1}


def test_c1_3_a_waiting_request_that_does_not_fit_stops_admission():
    scheduler = make(num_blocks=6)
    ask(scheduler, "running", 4)
    step(scheduler)
    ask(scheduler, "big", 17, 1)
    ask(scheduler, "small", 1, 1)
    assert shares(step(scheduler)) == {"running": 1}


def test_c1_3_a_running_request_without_tokens_to_run_is_passed_over():
    scheduler = make()
    ask(scheduler, "ends", 4, 1)
    ask(scheduler, "goes on", 4)
    first = scheduler.schedule()
    plan = scheduler.schedule()
    assert shares(plan) == {"goes on": 1}
    scheduler.update(first, result_of(first))
    assert scheduler.get("ends") is None


@pytest.mark.parametrize("budget", [8, 9, 16, 17])
def test_cor_04_tokens_stay_within_the_budget(budget):
    scheduler = make(token_budget=budget)
    for i in range(4):
        ask(scheduler, f"r{i}", 13 + i, 3)
    while scheduler.num_unfinished:
        plan = step(scheduler)
        assert 0 < plan.num_tokens <= budget
        assert sum(shares(plan).values()) == plan.num_tokens


def test_c1_4_the_budget_is_used_up_by_the_last_chunk():
    scheduler = make(token_budget=10)
    ask(scheduler, "a", 6)
    ask(scheduler, "b", 6)
    assert shares(step(scheduler)) == {"a": 6, "b": 4}
    assert shares(step(scheduler)) == {"a": 1, "b": 2}


def test_c1_5_without_chunking_a_prompt_waits_for_the_whole_budget():
    scheduler = make(token_budget=20, enable_chunked_prefill=False)
    ask(scheduler, "a", 12, 1)
    ask(scheduler, "b", 12, 1)
    ask(scheduler, "c", 1, 1)
    assert shares(step(scheduler)) == {"a": 12}
    assert shares(step(scheduler)) == {"b": 12, "c": 1}


def test_c1_6_fcfs_takes_from_the_last_of_running():
    scheduler = make(num_blocks=4)
    for name in "abc":
        ask(scheduler, name, 4)
    step(scheduler)
    plan = step(scheduler)
    assert plan.preempted_ids == ("c", "b")
    assert shares(plan) == {"a": 1}


def test_c1_6_priority_takes_from_the_worst_even_if_it_came_first():
    scheduler = make(num_blocks=4, policy="priority")
    for name, priority in (("a", 5), ("b", 0), ("c", 1)):
        ask(scheduler, name, 4, priority=priority)
    step(scheduler)
    plan = step(scheduler)
    assert plan.preempted_ids == ("a", "c")
    assert shares(plan) == {"b": 1}


def test_c1_7_a_request_may_preempt_itself():
    scheduler = make(num_blocks=4)
    ask(scheduler, "grows", 7, 5)
    ask(scheduler, "last", 4)
    step(scheduler)  # two blocks and one
    plan = step(scheduler)
    assert plan.preempted_ids == ("last",)
    assert shares(plan) == {"grows": 1}


def test_c1_8_smaller_priority_first_then_arrival():
    scheduler = make(max_num_seqs=1, token_budget=64, policy="priority")
    for name, priority, arrival in (("c", 1, 0), ("b", 0, 9), ("a", 0, 3)):
        ask(scheduler, name, 4, 1, priority=priority, arrival=arrival)
    order = []
    while scheduler.num_unfinished:
        order += shares(step(scheduler))
    assert order == ["a", "b", "c"]


def test_c1_9_a_preempted_request_runs_all_its_tokens_again_before_others():
    scheduler = make(num_blocks=5)
    ask(scheduler, "old", 7, 5)
    young = ask(scheduler, "young", 7, 5)
    waiting = ask(scheduler, "new", 1, 1)
    scheduler.finish(["new"], FinishReason.ABORT)
    step(scheduler, 50)
    step(scheduler, 51)
    plan = step(scheduler, 52)
    assert plan.preempted_ids == ("young",)
    assert young.status is RequestStatus.PREEMPTED
    assert young.token_ids[7:] == [50, 51]
    ask(scheduler, "new", 1, 1)
    while scheduler.get("old") is not None:
        assert "young" not in shares(step(scheduler, 53))
    (row, *_) = (r for r in step(scheduler, 54).rows if r.request_id == "young")
    assert row.token_ids == (*young.token_ids[:7], 50, 51)
    assert (row.samples, row.carries, row.num_computed_tokens) == (True, False, 0)
    assert young.token_ids[7:] == [50, 51, 54]
    assert waiting.is_finished


def test_c1_12_only_a_request_that_fits_whole_is_admitted():
    scheduler = make(num_blocks=6, token_budget=8)
    ask(scheduler, "a", 12, 1)
    ask(scheduler, "b", 12, 1)
    assert shares(step(scheduler)) == {"a": 8}
    assert shares(step(scheduler)) == {"a": 4}
    assert shares(step(scheduler)) == {"b": 8}


def test_mem_01_a_request_that_can_never_fit_is_refused():
    scheduler = make(num_blocks=4)
    assert scheduler.max_sequence_tokens == 13
    with pytest.raises(ValueError, match="14 tokens and the KV pool holds 13"):
        ask(scheduler, "big", 4, 10)
    ask(scheduler, "just fits", 4, 9)
    ask(scheduler, "behind", 4, 9)
    for _ in range(40):
        step(scheduler)
    assert scheduler.num_unfinished == 0


def test_c1_15_a_live_id_is_refused():
    scheduler = make()
    ask(scheduler, "a", 4)
    with pytest.raises(ValueError, match="'a' is in use"):
        ask(scheduler, "a", 4)


def test_c1_13_finished_ids_reach_the_next_plan_once():
    scheduler = make()
    ask(scheduler, "a", 4, 1)
    ask(scheduler, "b", 4)
    ask(scheduler, "c", 4)
    scheduler.finish(["c", "nobody", "c"], FinishReason.ABORT)
    assert step(scheduler).finished_ids == ("c",)
    assert step(scheduler).finished_ids == ("a",)
    assert step(scheduler).finished_ids == ()


def test_c1_14_results_of_an_aborted_request_are_ignored_even_if_its_id_is_used_again():
    scheduler = make()
    old = ask(scheduler, "a", 4)
    first = scheduler.schedule()
    assert scheduler.finish(["a"], FinishReason.ABORT) == [old]
    new = ask(scheduler, "a", 5)
    second = scheduler.schedule()
    assert scheduler.update(first, result_of(first, 50)) == []
    (event,) = scheduler.update(second, result_of(second, 51))
    assert event.request is new
    assert (old.num_output_tokens, new.token_ids[5:]) == (0, [51])


def test_c1_14_a_failure_of_an_aborted_request_does_not_end_its_successor():
    scheduler = make()
    ask(scheduler, "a", 4)
    first = scheduler.schedule()
    scheduler.finish(["a"], FinishReason.ABORT)
    new = ask(scheduler, "a", 5)
    scheduler.schedule()
    assert scheduler.update(first, StepResult(0, ((),), None, (0,))) == []
    assert not new.is_finished


def test_c1_16_running_requests_count_even_when_they_run_nothing():
    scheduler = make(max_num_seqs=2)
    for name in "abc":
        ask(scheduler, name, 4, 1)
    first = scheduler.schedule()
    assert shares(scheduler.schedule()) == {}
    scheduler.update(first, result_of(first))
    assert shares(scheduler.schedule()) == {"c": 4}


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_mem_04_long_prompts_do_not_stop_a_request_that_decodes(policy):
    scheduler = make(num_blocks=200, token_budget=16, policy=policy)
    ask(scheduler, "decodes", 4, 30, priority=9)
    step(scheduler)
    for i in range(3):
        ask(scheduler, f"long {i}", 100, 1, arrival=1 + i)
    plans = [shares(step(scheduler)) for _ in range(20)]
    assert all(plan["decodes"] == 1 for plan in plans)
    assert all(sum(plan.values()) == 16 for plan in plans[:18])


def test_a_failed_row_ends_its_request_alone():
    scheduler = make()
    bad, good = ask(scheduler, "bad", 4), ask(scheduler, "good", 4)
    plan = scheduler.schedule()
    events = scheduler.update(plan, StepResult(0, ((), (7,)), None, (0,)))
    assert {e.request.request_id: e.token_ids for e in events} == {
        "bad": (),
        "good": (7,),
    }
    assert (bad.finish_reason, good.finish_reason) == (FinishReason.ERROR, None)
    assert shares(step(scheduler)) == {"good": 1}


def test_one_step_ahead_a_token_is_carried_and_the_last_one_is_not_run():
    scheduler = make()
    ask(scheduler, "a", 4, 3)
    plans = [scheduler.schedule()]
    for _ in range(3):
        plans.append(scheduler.schedule())
        scheduler.update(plans[-2], result_of(plans[-2]))
    rows = [plan.rows for plan in plans]
    assert [len(r) for r in rows] == [1, 1, 1, 0]
    assert [(r[0].carries, r[0].token_ids) for r in rows[1:3]] == [(True, ())] * 2
    assert scheduler.num_unfinished == scheduler.stats.num_blocks_in_use == 0


def test_one_step_ahead_the_token_after_the_end_is_dropped():
    scheduler = make()
    request = ask(scheduler, "a", 4, eos_token_id=9)
    plans = [scheduler.schedule(), scheduler.schedule()]
    scheduler.update(plans[0], result_of(plans[0], 9))
    assert (request.finish_reason, request.stop_reason) == (FinishReason.STOP, None)
    assert scheduler.update(plans[1], result_of(plans[1])) == []
    assert request.token_ids[4:] == [9]
    assert scheduler.stats.num_blocks_in_use == 0


def test_one_step_ahead_a_preempted_request_waits_for_its_token():
    scheduler = make(num_blocks=4)
    ask(scheduler, "old", 8, 2)
    young = ask(scheduler, "young", 4)
    first = scheduler.schedule()
    assert scheduler.schedule().preempted_ids == ("young",)
    scheduler.finish(["old"], FinishReason.ABORT)
    assert scheduler.schedule().rows == ()
    scheduler.update(first, result_of(first, 50))
    (row,) = scheduler.schedule().rows
    assert row.token_ids == (*range(100, 104), 50)
    assert young.token_ids[-1] == 50


def test_rewinding_keeps_known_tokens_and_starts_over():
    scheduler = make()
    request, other = ask(scheduler, "a", 4), ask(scheduler, "b", 4)
    step(scheduler, 50)
    lost = scheduler.schedule()
    scheduler.rewind([request, other])
    assert scheduler.update(lost, result_of(lost, 99)) == []
    plan = step(scheduler, 51)
    assert plan.rows[0].token_ids == (*range(100, 104), 50)
    assert request.token_ids[4:] == [50, 51]


def test_rewinding_ends_what_had_its_last_token():
    scheduler = make()
    request = ask(scheduler, "a", 4, 1)
    scheduler.schedule()
    request.token_ids.append(7)  # the update broke off here
    scheduler.rewind([request])
    assert (request.finish_reason, scheduler.num_unfinished) == (FinishReason.LENGTH, 0)
