import pytest

from jengine.bench.compare.workload import Workload
from jengine.errors import InvalidValueError


def test_lengths_are_spread_from_least_to_most():
    workload = Workload(vocab_size=100, min_prompt_tokens=10, max_prompt_tokens=40)
    assert sorted(workload.prompt_lengths(4)) == [10, 20, 30, 40]
    assert workload.prompt_lengths(1) == [25]
    assert workload.prompt_lengths(32) != sorted(workload.prompt_lengths(32))


def test_rounds_share_lengths_but_no_ids():
    workload = Workload(vocab_size=10**6)
    rounds = [workload.prompts(8, number) for number in range(-1, 3)]
    for prompts in rounds:
        assert [len(prompt) for prompt in prompts] == workload.prompt_lengths(8)
    blocks = [tuple(p[i : i + 16]) for ps in rounds for p in ps for i in range(16)]
    assert len(set(blocks)) == len(blocks)  # no cached block can help


def test_the_same_seed_asks_the_same():
    one, same = Workload(vocab_size=50), Workload(vocab_size=50)
    other = Workload(vocab_size=50, seed=1)
    assert one.prompts(2, 0) == same.prompts(2, 0) != other.prompts(2, 0)


def test_ids_stay_below_the_vocabulary():
    ids = {i for p in Workload(vocab_size=7).prompts(8, 0) for i in p}
    assert ids == set(range(7))


@pytest.mark.parametrize(
    "wrong",
    [
        {"batches": ()},
        {"batches": (1, 0)},
        {"min_prompt_tokens": 0},
        {"min_prompt_tokens": 9, "max_prompt_tokens": 8},
        {"output_tokens": 0},
    ],
)
def test_nonsense_is_refused(wrong):
    with pytest.raises(InvalidValueError):
        Workload(vocab_size=10, **wrong)
