import subprocess
import sys

import pytest

from jengine.core.plan import SamplingOptions, ScheduledRequest, StepPlan
from jengine.core.request import Request
from jengine.core.scheduler import Scheduler
from jengine.runner_protocol import Runner
from jengine.testing.fake_runner import FakeRunner, PlanError, chain_of, next_token

GREEDY = SamplingOptions()


def make(**changes):
    sizes = {"num_blocks": 8, "block_size": 2, "token_budget": 8, "max_num_seqs": 3}
    return FakeRunner(**sizes | changes)


def row(name="a", **changes):
    fields = {
        "request_id": name,
        "seat": 0,
        "num_computed_tokens": 0,
        "token_ids": (5, 6, 7),
        "carries": False,
        "new_block_ids": (1, 2),
        "samples": True,
        "options": GREEDY,
    }
    return ScheduledRequest(**fields | changes)


def following(**changes):
    """The row that runs the token sampled by `row()`, on the device."""
    fields = {
        "num_computed_tokens": 3,
        "token_ids": (),
        "carries": True,
        "new_block_ids": (),
        "options": None,
    }
    return row(**fields | changes)


def plan(*rows, step=0, **changes):
    rows = sorted(rows, key=lambda r: r.num_tokens > 1)
    fields = {
        "step": step,
        "rows": tuple(rows),
        "num_single_token_rows": sum(r.num_tokens == 1 for r in rows),
        "num_tokens": sum(r.num_tokens for r in rows),
        "finished_ids": (),
        "preempted_ids": (),
    }
    return StepPlan(**fields | changes)


def run(runner, *rows, step=0):
    return runner.collect(runner.dispatch(plan(*rows, step=step))).sampled


def test_it_is_a_runner_that_loads_no_jax():
    assert isinstance(make(), Runner)
    code = (
        "import sys, jengine.testing.fake_runner;"
        "assert not {'numpy', 'jax', 'flax'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_token_follows_from_its_context_alone():
    runner = make()
    first = next_token([5, 6, 7], GREEDY, vocab_size=100)
    second = next_token([5, 6, 7, first], GREEDY, vocab_size=100)
    assert run(runner, row()) == ((first,),)
    assert run(runner, following(), step=1) == ((second,),)
    known = following(
        num_computed_tokens=4, token_ids=(second,), carries=False, new_block_ids=(4,)
    )
    third = next_token([5, 6, 7, first, second], GREEDY, vocab_size=100)
    assert run(runner, known, step=2) == ((third,),)


def test_tokens_differ_with_context_and_seed():
    contexts = [[1, 2], [2, 1], [1, 2, 0], [0, 1, 2]]
    assert len({chain_of(context) for context in contexts}) == 4
    seeds = [SamplingOptions(temperature=1.0, seed=s) for s in range(50)]
    assert len({next_token([1], s, vocab_size=1000) for s in seeds}) > 40
    greedy = [s._replace(temperature=0.0) for s in seeds]
    assert len({next_token([1], s, vocab_size=1000) for s in greedy}) == 1


def test_stop_ids_are_avoided_before_their_position():
    drawn = next_token([1], GREEDY, vocab_size=10)
    early = SamplingOptions(stops_from=2, stop_ids=(drawn, (drawn + 1) % 10))
    assert next_token([1], early, vocab_size=10) == (drawn + 2) % 10
    assert next_token([1], early._replace(stops_from=1), vocab_size=10) == drawn


def test_a_part_of_the_tokens_samples_nothing():
    assert run(make(), row(samples=False)) == ((),)


def test_poison_fails_the_rows_that_have_seen_it():
    runner = make(poison=frozenset({6}))
    other = row("b", seat=1, token_ids=(5, 5), new_block_ids=(3,))
    result = runner.collect(runner.dispatch(plan(row(), other)))
    assert [bool(ids) for ids in result.sampled] == [False, True]
    assert result.failed_rows == (0,)


def test_logprobs_come_with_those_who_ask():
    runner = make()
    asks = row(
        "b", seat=1, new_block_ids=(3, 4), options=SamplingOptions(num_logprobs=0)
    )
    result = runner.collect(runner.dispatch(plan(row(), asks)))
    assert result.logprobs[0] is None
    assert result.logprobs[1].token_ids == result.sampled[1]
    assert runner.collect(runner.dispatch(plan(following(), step=1))).logprobs is None


def test_a_prefix_hit_reads_what_another_row_writes_in_the_same_step():
    runner = make()
    hits = row("b", seat=1, num_computed_tokens=2, token_ids=(7,), new_block_ids=(1, 3))
    one, other = run(runner, row(), hits)
    assert one == other


def test_resetting_forgets_seats_and_cache():
    runner = make()
    run(runner, row())
    runner.reset()
    with pytest.raises(PlanError, match="seat 0 of None"):
        run(runner, following(), step=1)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row(), row("b", new_block_ids=(3, 4))], "a seat has two rows"),
        ([row(), row(seat=1, new_block_ids=(3, 4))], "a request runs twice"),
        ([row(token_ids=(), samples=False)], "runs no token"),
        ([row(token_ids=(1,) * 9, new_block_ids=(1, 2, 3, 4, 5))], "the budget"),
        ([row(seat=3)], "no seat 3"),
        ([row(options=None)], "seat 0 of None"),
        ([row(token_ids=(5, 6), carries=True)], "carries a token on admission"),
        ([row(new_block_ids=(0, 1))], "cannot be handed out"),
        ([row(new_block_ids=(1, 8))], "cannot be handed out"),
        ([row(new_block_ids=(1, 1))], "holds a block twice"),
        ([row(new_block_ids=(1,))], "no slot for token 2"),
        ([row(), row("b", seat=1, new_block_ids=(3, 2))], "two rows write block 2"),
        ([row(num_computed_tokens=1, new_block_ids=(1, 2))], "inside a block"),
        ([row(num_computed_tokens=2, new_block_ids=(1, 2, 3))], "do not hold a prefix"),
    ],
)
def test_a_wrong_admission_is_refused(rows, message):
    with pytest.raises(PlanError, match=message):
        run(make(), *rows)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([following(num_computed_tokens=2)], "continues at 2, not at 3"),
        ([following(new_block_ids=(3,), num_computed_tokens=4)], "at 4, not at 3"),
        ([following(name="b")], "b runs at seat 0 of a"),
        ([following(seat=1)], "seat 1 of None"),
        ([following(carries=False, token_ids=(101,))], "was told 101"),
        ([following(new_block_ids=(2,))], "holds a block twice"),
        (
            [following(), row("b", seat=1, token_ids=(9, 9), new_block_ids=(1,))],
            "block 1 of a is overwritten",
        ),
    ],
)
def test_a_wrong_continuation_is_refused(rows, message):
    runner = make()
    run(runner, row())
    with pytest.raises(PlanError, match=message):
        run(runner, *rows, step=1)


def test_a_carry_needs_a_sampled_token():
    runner = make()
    run(runner, row(samples=False))
    with pytest.raises(PlanError, match="carries what is not there"):
        run(runner, following(), step=1)


def test_a_block_overwritten_in_between_is_noticed():
    runner = make()
    run(runner, row())
    run(runner, row("b", seat=1, token_ids=(9, 9), new_block_ids=(1,)), step=1)
    with pytest.raises(PlanError, match="in block 1, not"):
        run(runner, following(), step=2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_tokens": 2}, "num_tokens is not"),
        ({"num_single_token_rows": 1}, "a long row among"),
        ({"step": -1}, "step -1 comes too late"),
    ],
)
def test_a_plan_that_contradicts_itself_is_refused(changes, message):
    with pytest.raises(PlanError, match=message):
        make().dispatch(plan(row(), **changes))


def test_single_tokens_must_come_first():
    with pytest.raises(PlanError, match="a single token among"):
        make().dispatch(plan(row(token_ids=(5,)), num_single_token_rows=0))


def test_it_runs_a_scheduler():
    sizes = {"num_blocks": 8, "block_size": 2, "token_budget": 4, "max_num_seqs": 2}
    scheduler, runner = Scheduler(**sizes), FakeRunner(**sizes)
    request = Request("a", [5, 6, 7], max_total_tokens=8)
    scheduler.add(request)
    while scheduler.num_unfinished:
        step_plan = scheduler.schedule()
        scheduler.update(step_plan, runner.collect(runner.dispatch(step_plan)))
    expected = [5, 6, 7]
    for _ in range(5):
        expected.append(next_token(expected, GREEDY, vocab_size=100))
    assert request.token_ids == expected
