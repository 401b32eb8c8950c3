import pytest

from jengine.core.plan import SamplingOptions, ScheduledRequest
from jengine.core.request import Request
from jengine.core.rows import schedule_row


def make(known=5, expected=None, computed=0):
    request = Request("a", list(range(10, 10 + known)), max_total_tokens=50)
    request.admit(3, computed)
    if expected is not None:
        request.num_expected_tokens = expected
    return request


def test_an_admission_carries_options_and_the_whole_table():
    request = make(computed=2)
    row = schedule_row(request, 3, (7, 8), 4, request.options)
    assert isinstance(row, ScheduledRequest)
    options = SamplingOptions()
    assert row == ("a", 3, 2, (12, 13, 14), False, (7, 8), True, options, ())
    assert (request.num_computed_tokens, request.num_expected_tokens) == (5, 6)
    assert request.in_flight == [4]


@pytest.mark.parametrize("count", [1, 4])
def test_c3_1_a_part_of_the_known_tokens_does_not_sample(count):
    request = make()
    row = schedule_row(request, count, (), 0, None)
    assert (row.num_tokens, row.samples, row.options) == (count, False, None)
    assert (request.num_computed_tokens, request.num_expected_tokens) == (count, 5)
    assert request.in_flight == []


def test_a_token_still_on_the_device_is_carried():
    request = make(expected=6, computed=5)
    row = schedule_row(request, 1, (), 1, None)
    assert (row.token_ids, row.carries, row.samples) == ((), True, True)
    assert request.num_expected_tokens == 7


def test_a_known_last_token_is_sent():
    request = make(computed=4)
    row = schedule_row(request, 1, (), 1, None)
    assert (row.token_ids, row.carries, row.samples) == ((14,), False, True)
