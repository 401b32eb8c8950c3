"""Turns of engines that are no processes."""

import pytest

from jengine.bench.compare.backend_process import BackendError
from jengine.bench.compare.comparison import (
    Patience,
    call_undisturbed,
    compare,
    rotated,
)
from jengine.bench.compare.contender import Call, Contender
from jengine.bench.compare.result import Sample
from jengine.bench.compare.workload import Workload

PATIENCE = Patience(rounds=3, max_repeats=2, quiet_wait_s=0.0)


class Fake(Contender):
    """Draws the same token over and over, at a set speed."""

    def __init__(self, name, calls, *, token=1, dies_at=None, error=None):
        super().__init__(name, error)
        self.calls, self.token, self.dies_at = calls, token, dies_at
        self.about = {"version": "1", "init_s": 2.0, "versions": {"x": "y"}}
        self.num_calls = 0

    @property
    def is_running(self):
        return self.error is None

    def call(self, prompts, output_tokens, timeout_s):
        self.calls.append((self.name, [len(p) for p in prompts], prompts[0][:3]))
        self.num_calls += 1
        if self.num_calls == self.dies_at:
            raise BackendError("out of memory")
        sample = Sample(tokens_per_s=10.0 * self.num_calls, foreign_cpus=0.0)
        return Call(sample, [[self.token] * output_tokens for _ in prompts])

    def fail(self, error):
        self.error = str(error)


@pytest.fixture
def workload():
    return Workload(batches=(2, 3), vocab_size=100, output_tokens=4)


def run(contenders, workload):
    return compare(contenders, workload, PATIENCE)


def test_engines_take_turns_on_the_same_prompts(workload):
    calls = []
    results = run([Fake("a", calls), Fake("b", calls, token=2)], workload)
    names = [name for name, _, _ in calls]
    assert names == [*"ba", *"ab", *"ba", *"ab"] * 2  # a warm-up, three rounds
    for first, second in zip(calls[::2], calls[1::2], strict=True):
        assert first[1:] == second[1:]
    starts = [tuple(prompt) for _, _, prompt in calls[::2]]
    assert len(set(starts)) == len(starts)  # new ids in each round
    assert [(r.backend, r.batch) for r in results] == [
        ("a", 2), ("b", 2), ("a", 3), ("b", 3),
    ]  # fmt: skip
    assert [s.tokens_per_s for s in results[0].samples] == [20.0, 30.0, 40.0]
    assert results[0].prompt_tokens == sum(workload.prompt_lengths(2))
    assert results[0].output_tokens == 2 * 4
    assert results[0].versions == (("x", "y"),)
    assert [r.same_tokens for r in results] == [None, 0.0, None, 0.0]


def test_who_fails_is_out_and_says_why(workload):
    calls = []
    contenders = [
        Fake("a", calls),
        Fake("b", calls, dies_at=3),
        Fake("c", calls, error="not installed"),
    ]
    results = run(contenders, workload)
    assert [r.error for r in results] == [None, "out of memory", "not installed"] * 2
    assert [len(r.samples) for r in results] == [3, 1, 0, 3, 0, 0]


def test_repetition_is_told_by_others_alone():
    samples = [
        Sample(tokens_per_s=r, foreign_cpus=f) for r, f in [(9.0, 1.0), (5.0, 0.05)]
    ]
    calls = iter([Call(one, []) for one in samples])
    found, rejected = call_undisturbed(lambda: next(calls), PATIENCE)
    assert found.sample is samples[1]
    assert rejected == [samples[0]]


def test_repetition_ends_and_takes_the_least_disturbed():
    loads = [0.9, 0.3, 0.8, 0.0]
    samples = [
        Sample(tokens_per_s=float(i), foreign_cpus=f) for i, f in enumerate(loads)
    ]
    calls = iter([Call(one, []) for one in samples])
    found, rejected = call_undisturbed(lambda: next(calls), PATIENCE)
    assert found.sample is samples[1]
    assert rejected == [samples[0], samples[2]]


def test_rotation():
    assert [rotated("abc", by) for by in (-1, 0, 4)] == [
        ["c", "a", "b"],
        ["a", "b", "c"],
        ["b", "c", "a"],
    ]
    assert rotated([], 1) == []
