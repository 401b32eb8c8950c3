import jax.numpy as jnp
import pytest

from jengine.bench.gpu_check.timing import time_chain


class Ticker:
    """A clock that a chain's calls advance, at so many seconds each."""

    def __init__(self, *seconds: float) -> None:
        self.now = 0.0
        self.seconds = list(seconds)
        self.calls = 0

    def advance(self, state):
        self.now += self.seconds[min(self.calls, len(self.seconds) - 1)]
        self.calls += 1
        return state + 1

    def __call__(self) -> float:
        return self.now


def test_first_calls_do_not_count_and_the_median_does():
    ticker = Ticker(100.0, 4.0, 1.0, 9.0, 3.0)
    timing = time_chain(
        ticker.advance, jnp.int32(0), samples=3, advances=1, clock=ticker
    )
    assert timing[:4] == (3.0, 1.0, 9.0, 3)
    assert ticker.calls == 5


def test_a_sample_lasts_long_enough_and_its_time_is_shared_among_its_calls():
    ticker = Ticker(5.0, 0.25)
    timing = time_chain(
        ticker.advance, jnp.int32(0), samples=2, sample_s=1.1, calls=8, clock=ticker
    )
    assert timing.calls == 5 * 8  # 5 advances of 0.25 s are the first 1.1 s or more
    assert timing.seconds == pytest.approx(0.25 / 8)
    assert timing.fields()["calls_per_sample"] == 40


def test_each_call_gets_what_the_last_one_returned():
    seen = []

    def advance(state):
        seen.append(int(state))
        return state + 1

    time_chain(advance, jnp.int32(0), samples=2, advances=3)
    assert seen == list(range(2 + 2 * 3))
