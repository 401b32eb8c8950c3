import pytest

from jengine.bench.roofline import limits
from jengine.bench.roofline.limits import measure_limits


def test_rates_of_small_arrays_are_positive():
    found = measure_limits("float32", num_bytes=2**16, product_size=32)
    assert 1e6 < found.bytes_per_s < 1e15
    assert 1e3 < found.flops_per_s < 1e18


def test_rates_are_bytes_and_operations_over_seconds(monkeypatch):
    """With a clock that says how long each chain takes."""

    class Timing:
        fastest = 0.5

    calls = []

    def time_chain(advance, state, **options):
        calls.append(options)
        advance(advance(state)).block_until_ready()
        return Timing

    monkeypatch.setattr(limits, "time_chain", time_chain)
    found = measure_limits("float32", num_bytes=2**16, product_size=64)
    assert found.bytes_per_s == pytest.approx(2**16 / 0.5)
    assert found.flops_per_s == pytest.approx(2 * 64**3 / 0.5)
    assert len(calls) == 3
