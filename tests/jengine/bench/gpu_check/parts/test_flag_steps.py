import pytest

from jengine.bench.gpu_check.parts.flag_steps import FULL, SMOKE, decode_plans
from jengine.testing.fake_runner import FakeRunner, PlanError


@pytest.mark.parametrize("task", [FULL, SMOKE], ids=["full", "smoke"])
def test_there_are_blocks_and_positions_for_every_step(task):
    size = task.size
    last = None
    for last in decode_plans(max(task.batches), context=task.context, steps=task.steps):
        assert last.num_single_token_rows == last.num_tokens == max(task.batches)
    row = last.rows[-1]
    assert last.step + 1 == task.steps
    assert row.num_computed_tokens + 1 == task.context + task.steps - 1
    assert row.num_computed_tokens < size.max_model_len


def test_rows_have_blocks_of_their_own_and_carry_after_the_first_step():
    first, second = list(decode_plans(3, context=20, steps=2))
    blocks = [block for row in first.rows for block in row.new_block_ids]
    assert len(set(blocks)) == len(blocks) == 3 * 2  # 22 tokens in blocks of 16
    assert min(blocks) == 1  # the null block is nobody's
    assert all(row.options is not None and not row.carries for row in first.rows)
    assert all(row.carries and not row.new_block_ids for row in second.rows)
    positions = [
        row.num_computed_tokens for plan in (first, second) for row in plan.rows
    ]
    assert positions == [19] * 3 + [20] * 3


def test_plans_are_those_of_a_scheduler_but_for_the_prompts():
    def run(context):
        runner = FakeRunner(
            num_blocks=20, block_size=16, token_budget=8, max_num_seqs=4
        )
        for plan in decode_plans(2, context=context, steps=9):
            runner.collect(runner.dispatch(plan))

    run(context=1)  # then there is no prompt that anybody could have computed
    with pytest.raises(PlanError):
        run(context=20)
