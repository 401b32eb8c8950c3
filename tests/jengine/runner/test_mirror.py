import numpy as np
import pytest

from jengine.core.plan import SamplingOptions, ScheduledRequest, StepPlan
from jengine.runner.layout import SamplingColumn
from jengine.runner.mirror import (
    FILTERED,
    LOGPROBS,
    RANDOM,
    SeatMirror,
    features,
    sampling_columns,
)


def plan(seat, blocks, options=None):
    row = ScheduledRequest("a", seat, 0, (1,), False, blocks, True, options)
    return StepPlan(0, (row,), 1, 1, (), ())


def test_a_seat_is_a_fold_over_plans():
    mirror = SeatMirror(max_num_seqs=2, max_blocks=4)
    options = SamplingOptions(num_logprobs=3, stops_from=7, stop_ids=(1, 2), top_k=5)
    mirror.apply(plan(1, (4, 5), options))
    mirror.apply(plan(1, ()))
    mirror.apply(plan(1, (6,)))
    assert mirror.block_tables[1, :3].tolist() == [4, 5, 6]
    assert mirror.num_blocks.tolist() == [0, 3]
    assert mirror.sampling[1, SamplingColumn.TOP_K] == 5
    assert (mirror.stops_from[1], mirror.stop_ids[1]) == (7, (1, 2))
    assert mirror.num_logprobs == [-1, 3]


def test_a_new_holder_of_a_seat_inherits_nothing():
    mirror = SeatMirror(max_num_seqs=1, max_blocks=4)
    busy = SamplingOptions(1.0, 5, 0.5, 0.1, 9, 3, 7, (1, 2))
    mirror.apply(plan(0, (4, 5, 6), busy))
    mirror.apply(plan(0, (7,), SamplingOptions()))
    assert (mirror.num_blocks[0], mirror.block_tables[0, 0]) == (1, 7)
    assert (mirror.features[0], mirror.stops_from[0]) == (0, 0)
    assert (mirror.stop_ids[0], mirror.num_logprobs[0]) == ((), -1)
    assert mirror.sampling[0].tolist() == sampling_columns(SamplingOptions()).tolist()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (SamplingOptions(), 0),
        (SamplingOptions(top_k=3, top_p=0.5), 0),
        (SamplingOptions(temperature=1.0), RANDOM),
        (SamplingOptions(temperature=1.0, min_p=0.5), RANDOM),
        (SamplingOptions(temperature=1.0, top_k=3), RANDOM | FILTERED),
        (SamplingOptions(temperature=1.0, top_p=0.9), RANDOM | FILTERED),
        (SamplingOptions(num_logprobs=0), LOGPROBS),
    ],
)
def test_features(options, expected):
    assert features(options) == expected


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**32 + 7, 2**64 - 1, -1])
def test_columns_hold_seeds_and_floats_bit_for_bit(seed):
    columns = sampling_columns(SamplingOptions(0.7, 4, 0.9, 0.1, seed))
    low = int(columns[SamplingColumn.SEED_LOW]) % 2**32
    high = int(columns[SamplingColumn.SEED_HIGH]) % 2**32
    assert low + (high << 32) == seed % 2**64
    floats = columns[SamplingColumn.TEMPERATURE : SamplingColumn.PRESENCE]
    assert floats.view(np.float32).tolist() == np.array([0.7, 0.9, 0.1], "f").tolist()
    assert columns[SamplingColumn.PRESENCE :].view(np.float32).tolist() == [0, 0, 1]
