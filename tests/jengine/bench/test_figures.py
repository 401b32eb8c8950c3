import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jengine.bench.figures import count_good, parse_slos, summarise, tpot
from jengine.errors import InvalidValueError

SECONDS = st.floats(0.0, 1e3)


@given(values=st.lists(SECONDS, min_size=2, max_size=50))
def test_figures_are_those_of_the_standard_library(values):
    found = summarise(values, [25.0, 50.0, 75.0])
    assert found.mean == pytest.approx(statistics.fmean(values))
    assert found.median == pytest.approx(statistics.median(values))
    assert found.std == pytest.approx(statistics.pstdev(values), abs=1e-6)
    quartiles = statistics.quantiles(values, n=4, method="inclusive")
    assert [value for _, value in found.percentiles] == pytest.approx(quartiles)


def test_percentiles_lie_between_neighbours():
    found = summarise([0.0, 10.0], [0.0, 99.0, 100.0])
    assert found.percentiles == ((0.0, 0.0), (99.0, 9.9), (100.0, 10.0))
    assert summarise([], [99.0]).percentiles == ((99.0, 0.0),)
    assert summarise([3.0], []).percentiles == ()


def test_objectives_are_given_in_milliseconds():
    assert parse_slos(["ttft:200", "e2el:1500.5"]) == {"ttft": 0.2, "e2el": 1.5005}
    assert parse_slos([]) == {}


@pytest.mark.parametrize("text", ["ttft", "ttft:", "itl:5", "tpot:-1", "tpot:nan"])
def test_other_objectives_are_refused(text):
    with pytest.raises(InvalidValueError, match="NAME:MILLISECONDS"):
        parse_slos([text])


def test_good_requests_meet_all_objectives():
    durations = {"ttft": [0.1, 0.2, 0.3], "tpot": [0.0, 0.06, 0.01], "e2el": [9.0] * 3}
    assert count_good({"ttft": 0.2}, durations) == 2
    assert count_good({"ttft": 0.2, "tpot": 0.05}, durations) == 1
    assert count_good({"ttft": 0.3, "tpot": 0.06, "e2el": 9.0}, durations) == 3
    assert count_good({"e2el": 8.9}, durations) == 0


def test_time_per_token_leaves_the_first_out():
    assert tpot(2.0, 0.5, 4) == 0.5
    assert tpot(2.0, 2.0, 1) is None
