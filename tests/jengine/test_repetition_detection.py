import dataclasses

import pytest

from jengine import RepetitionDetectionParams, SamplingParams
from jengine.errors import SamplingParamsError


def test_a_dict_will_do():
    rule = RepetitionDetectionParams(max_pattern_size=4, min_count=3)
    fields = dataclasses.asdict(rule)
    assert SamplingParams(repetition_detection=fields).repetition_detection == rule


def test_zero_least_size_is_one():
    assert RepetitionDetectionParams(4, 0, 2).min_pattern_size == 1


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"max_pattern_size": 0}, "max_pattern_size"),
        ({"max_pattern_size": 2, "min_pattern_size": 3}, "min_pattern_size"),
        ({"max_pattern_size": 2, "min_pattern_size": -1}, "min_pattern_size"),
        ({"max_pattern_size": 2, "min_count": 1}, "min_count"),
        ({"max_pattern_size": 2.5}, "max_pattern_size"),
    ],
)
def test_values_that_make_no_sense(fields, named):
    with pytest.raises(SamplingParamsError, match=named):
        RepetitionDetectionParams(**fields)


@pytest.mark.parametrize("bad", [3, {}, {"max_pattern_size": 2, "size": 1}, "twice"])
def test_what_is_no_rule(bad):
    with pytest.raises(SamplingParamsError, match="repetition_detection"):
        SamplingParams(repetition_detection=bad)
