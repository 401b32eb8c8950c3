import pytest

from jengine.bench.roofline.knee import find_crossing, fit_knee

BATCHES = [1, 2, 4, 8, 16, 32, 64]


@pytest.mark.parametrize("knee", [1.0, 3.0, 11.0, 40.0])
def test_knee_of_steps_that_follow_the_model(knee):
    seconds = [0.02 * max(1.0, batch / knee) for batch in BATCHES]
    assert fit_knee(BATCHES, seconds) == pytest.approx(knee, rel=0.01)


def test_knee_with_noise_is_near():
    noise = [1.03, 0.98, 1.01, 0.97, 1.02, 1.0, 0.99]
    seconds = [n * max(1.0, b / 10) for n, b in zip(noise, BATCHES, strict=True)]
    assert fit_knee(BATCHES, seconds) == pytest.approx(10, rel=0.1)


def test_a_single_size():
    assert fit_knee([8], [0.5]) == pytest.approx(8)


def test_crossing_is_where_arithmetic_takes_longer():
    # Weights of 1 GB at 20 GB/s against 0.5 GFLOP a row at 100 GFLOP/s: 50 ms, 5 ms.
    assert find_crossing(lambda b: 0.05, lambda b: 0.005 * b) == 10
    assert find_crossing(lambda b: 0.05 + 0.002 * b, lambda b: 0.005 * b) == 17
    assert find_crossing(lambda b: 0.001, lambda b: 0.005 * b) == 1
    assert find_crossing(lambda b: 0.01 * b, lambda b: 0.005 * b) is None
