import pytest

from jengine.bench.gpu_check.parts import engine
from jengine.bench.gpu_check.parts.parity import (
    FULL,
    SMOKE,
    Expected,
    agreement,
    count_sure,
    judge,
)
from jengine.bench.gpu_check.recorder import CheckError


@pytest.mark.parametrize(
    ("found", "expected", "count"),
    [([1, 2, 3], [1, 2, 3], 3), ([1, 9, 3], [1, 2, 3], 1), ([9], [1], 0), ([], [], 0)],
)
def test_agreement_ends_at_the_first_difference(found, expected, count):
    assert agreement(found, expected) == count


EXPECTED = [Expected([1, 2, 3, 4], num_sure=4), Expected([5, 6, 7, 8], num_sure=2)]


def test_equal_ids_pass():
    assert judge([[1, 2, 3, 4], [5, 6, 7, 8]], EXPECTED)["tokens_compared"] == 6


def test_a_close_choice_may_turn():
    assert judge([[1, 2, 3, 4], [5, 6, 9, 9]], EXPECTED)["requests"] == 2


def test_a_clear_choice_may_not():
    with pytest.raises(CheckError, match=r"request 1 at token 1$"):
        judge([[1, 2, 3, 4], [5, 9, 7, 8]], EXPECTED)


def test_choices_are_sure_up_to_the_first_close_one():
    steps = [[-0.1, -2.0], [-3.0, -0.5, -0.9], [-0.7, -0.7001], [-1.0, -3.0]]
    assert count_sure(steps) == 2
    assert count_sure(steps[:2]) == 2
    assert count_sure([]) == 0


def test_a_smoke_test_compiles_an_engine_once():
    assert SMOKE.size == engine.SMOKE[0].size


@pytest.mark.parametrize("task", [FULL, SMOKE], ids=["full", "smoke"])
def test_every_request_fits_the_pool_alone(task):
    longest = max(task.lengths) + task.max_tokens
    assert longest <= task.size.max_model_len
    assert longest <= (task.size.num_blocks - 1) * task.size.block_size
