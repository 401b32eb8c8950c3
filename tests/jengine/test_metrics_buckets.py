import numpy as np
import pytest

from jengine import metrics_buckets
from jengine.metrics_buckets import Spread, token_limits


def test_counts_are_those_of_numpy():
    values = np.random.default_rng(0).exponential(1.0, 200)
    limits = (0.1, 0.5, 1.0, 4.0)
    spread = Spread(limits)
    for value in values:
        spread.observe(float(value))
    found = spread.value("h", {"a": "b"})
    assert found.count == 200
    assert found.sum == pytest.approx(values.sum())
    assert found.labels == {"a": "b"}
    assert list(found.buckets.items()) == [
        *((str(limit), int((values <= limit).sum())) for limit in limits),
        ("+Inf", 200),
    ]


def test_a_value_on_a_limit_belongs_below_it():
    spread = Spread((1, 2))
    spread.observe(1)
    spread.observe(2, times=3)
    spread.observe(2.5)
    assert spread.value("h", {}).buckets == {"1.0": 1, "2.0": 4, "+Inf": 5}
    assert spread.value("h", {}).sum == 1 + 6 + 2.5


def test_token_limits():
    assert token_limits(1) == (1,)
    assert token_limits(2048) == (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)


def test_all_limits_rise():
    names = ("REQUEST_S", "FIRST_TOKEN_S", "BETWEEN_TOKENS_S", "STEP_TOKENS", "STEP_S")
    for name in names:
        limits = getattr(metrics_buckets, name)
        assert list(limits) == sorted(set(limits))
