import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jengine.bench.arrivals import arrival_times, offered_rate, ramp_up_times
from jengine.errors import InvalidValueError

INFINITE = float("inf")


@given(
    count=st.integers(1, 200),
    rate=st.floats(0.1, 1e3),
    burstiness=st.floats(0.1, 50.0),
    seed=st.integers(0, 9),
)
def test_the_last_request_is_sent_at_count_over_rate(count, rate, burstiness, seed):
    times = arrival_times(count, rate=rate, burstiness=burstiness, seed=seed)
    assert times[-1] == pytest.approx(count / rate)
    assert all(a <= b for a, b in itertools.pairwise(times))
    assert times[0] >= 0
    assert offered_rate(times) == pytest.approx(rate)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_have_the_spread_of_a_gamma_distribution(burstiness):
    times = arrival_times(40_000, rate=5.0, burstiness=burstiness)
    gaps = np.diff([0.0, *times])
    assert gaps.mean() == pytest.approx(1 / 5.0)
    # Its coefficient of variation is 1 / sqrt(shape).
    assert gaps.std() / gaps.mean() == pytest.approx(burstiness**-0.5, rel=0.03)


def test_a_poisson_process_forgets():
    gaps = np.diff(arrival_times(40_000, rate=1.0))
    for limit in (0.5, 1.0, 2.0):  # P(gap > t) = exp(-t)
        assert (gaps > limit).mean() == pytest.approx(np.exp(-limit), abs=0.01)


def test_even_and_immediate_arrivals():
    assert arrival_times(4, rate=2.0, burstiness=INFINITE) == pytest.approx(
        [0.5, 1.0, 1.5, 2.0]
    )
    assert arrival_times(3, rate=INFINITE) == [0.0, 0.0, 0.0]
    assert arrival_times(0, rate=1.0) == []
    assert offered_rate([0.0, 0.0]) == INFINITE


@pytest.mark.parametrize("burstiness", [1e-4, 1e-300])
def test_gaps_that_are_all_zero_are_an_infinite_rate(burstiness):
    assert arrival_times(3, rate=2.0, burstiness=burstiness) == [0.0, 0.0, 0.0]


def test_ramp_up_by_equal_steps_or_factors():
    linear = ramp_up_times(
        5, strategy="linear", start_rate=1.0, end_rate=5.0, burstiness=INFINITE
    )
    assert np.diff([0.0, *linear]) == pytest.approx(1 / np.array([1, 2, 3, 4, 5.0]))
    factors = ramp_up_times(
        3, strategy="exponential", start_rate=1.0, end_rate=4.0, burstiness=INFINITE
    )
    assert np.diff([0.0, *factors]) == pytest.approx([1.0, 0.5, 0.25])


@pytest.mark.parametrize("wrong", [{"rate": 0.0}, {"rate": 1.0, "burstiness": -1.0}])
def test_nonsense_is_refused(wrong):
    with pytest.raises(InvalidValueError, match="above 0"):
        arrival_times(3, **wrong)
    with pytest.raises(InvalidValueError):
        ramp_up_times(2, strategy="linear", start_rate=1.0, end_rate=float("nan"))
    with pytest.raises(InvalidValueError, match="start_rate is inf; allowed: finite"):
        ramp_up_times(2, strategy="linear", start_rate=INFINITE, end_rate=1.0)
