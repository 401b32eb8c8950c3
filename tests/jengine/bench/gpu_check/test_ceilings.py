import jax
import pytest

from jengine.bench.gpu_check import ceilings
from jengine.bench.gpu_check.target import find_target
from jengine.bench.gpu_check.timing import Timing

TARGET = find_target()


@pytest.fixture
def states(monkeypatch):
    """The states of each chain that is timed: the first one and eight more."""
    seen = []

    def eight_advances(advance, state, **options):
        seen.append(state)
        for _ in range(8):
            seen.append(jax.block_until_ready(advance(seen[-1])))
        return Timing(2.0, 2.0, 2.0, 1, 1)

    monkeypatch.setattr(ceilings, "time_chain", eight_advances)
    return seen


def test_a_copy_is_another_array_with_the_same_numbers(states):
    ceilings.time_copy(TARGET, 4096)
    assert states[0].nbytes == 4096
    places = {state.unsafe_buffer_pointer() for state in states}
    assert len(places) == len(states)
    assert all((state == states[0]).all() for state in states)


def test_an_update_writes_other_numbers_of_the_same_size(states):
    ceilings.time_update(TARGET, 4096)
    assert (states[1] == -states[0]).all()
    assert (states[-1] == states[0]).all()


def test_a_read_returns_a_number_that_the_next_one_needs(states):
    ceilings.time_read(TARGET, 4096)
    assert {state.shape for state in states} == {()}
    assert all(0 < abs(float(state)) < 1e-3 for state in states[1:])


def test_products_keep_their_size_so_that_they_stay_numbers(states):
    ceilings.time_product(TARGET, 64)
    sizes = [float(abs(state.astype("float32")).mean()) for state in states]
    assert states[-1].shape == (64, 64)
    assert all(0.05 < size < 5 for size in sizes)  # after 4 products each


def test_rates_count_bytes_both_ways_and_two_operations(states):
    ceiling = ceilings.measure_ceiling(TARGET, num_bytes=1024, product_size=32)
    assert ceiling.bytes_per_s == 2 * 1024 / 2.0
    assert ceiling.flops_per_s == 2 * 32**3 / 2.0


def test_one_is_timed_for_real():
    timing = ceilings.time_update(TARGET, 4096)
    assert 0 < timing.fastest <= timing.seconds <= timing.slowest
    assert timing.samples == 5
