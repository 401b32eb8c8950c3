import pytest

from jengine.core.plan import SamplingOptions
from jengine.core.request import FinishReason, Request, RequestStatus


def make(**changes):
    options = {"max_total_tokens": 9, "eos_token_id": 5} | changes
    return Request("a", [1, 2, 3], **options)


def test_a_new_request_waits_with_nothing_computed():
    request = make(stop_token_ids=frozenset({6}))
    assert request.status is RequestStatus.WAITING
    assert request.ending_ids == {5, 6}
    assert request.options == SamplingOptions()
    assert (request.num_prompt_tokens, request.num_output_tokens) == (3, 0)
    assert (request.num_expected_tokens, request.num_computed_tokens) == (3, 0)
    assert request.num_cached_tokens is None
    assert not request.is_finished


def test_without_an_eos_only_stop_ids_end_it():
    request = make(eos_token_id=None, stop_token_ids=frozenset({6}))
    assert request.ending_ids == {6}


def test_bad_an_empty_prompt_is_refused():
    with pytest.raises(ValueError, match="'a' has an empty prompt"):
        Request("a", [], max_total_tokens=4)


@pytest.mark.parametrize("most", [0, 2, 3])
def test_bad_a_request_without_room_for_output_is_refused(most):
    with pytest.raises(ValueError, match=f"3 prompt tokens and may hold {most} in all"):
        make(max_total_tokens=most)


def test_the_prompt_is_copied():
    prompt = [1, 2]
    request = Request("a", prompt, max_total_tokens=4)
    request.token_ids.append(7)
    assert prompt == [1, 2]


def test_admission_remembers_the_first_cache_hit_only():
    request = make()
    request.admit(4, 2)
    assert (request.seat, request.num_computed_tokens) == (4, 2)
    assert request.status is RequestStatus.RUNNING
    request.preempt()
    request.admit(1, 0)
    assert (request.seat, request.num_cached_tokens) == (1, 2)


def test_c1_9_preemption_keeps_tokens_and_what_is_in_flight():
    request = make()
    request.admit(0, 0)
    request.token_ids.append(7)
    request.num_expected_tokens, request.in_flight = 5, [3]
    request.preempt()
    assert request.status is RequestStatus.PREEMPTED
    assert (request.seat, request.num_computed_tokens) == (None, 0)
    assert (request.token_ids, request.num_expected_tokens) == ([1, 2, 3, 7], 5)
    assert request.is_awaiting(3)


def test_only_the_oldest_step_in_flight_is_awaited():
    request = make()
    assert not request.is_awaiting(0)
    request.in_flight = [3, 4]
    assert request.is_awaiting(3)
    assert not request.is_awaiting(4)


@pytest.mark.parametrize("runs", [False, True])
def test_rewinding_keeps_only_what_the_host_knows(runs):
    request = make()
    if runs:
        request.admit(0, 0)
    request.num_computed_tokens, request.num_expected_tokens = 3, 4
    request.in_flight, request.block_hashes = [1], [b"x"]
    request.rewind()
    expected = RequestStatus.PREEMPTED if runs else RequestStatus.WAITING
    assert request.status is expected
    assert (request.num_computed_tokens, request.num_expected_tokens) == (0, 3)
    assert (request.in_flight, request.block_hashes, request.seat) == ([], [], None)


def test_rewinding_takes_back_an_end_that_nobody_was_told_of():
    request = make()
    request.admit(0, 0)
    request.finish(FinishReason.STOP, 6)
    request.rewind()
    assert request.status is RequestStatus.PREEMPTED
    assert (request.finish_reason, request.stop_reason) == (None, None)


def test_finishing_happens_once():
    request = make()
    request.admit(0, 0)
    request.finish(FinishReason.STOP, 6)
    assert request.is_finished
    assert (request.finish_reason, request.stop_reason) == ("stop", 6)
    assert request.seat is None
    for change in (request.preempt, lambda: request.admit(0, 0)):
        with pytest.raises(AssertionError):
            change()
    with pytest.raises(AssertionError):
        request.finish(FinishReason.ABORT, None)


def test_a_request_that_runs_cannot_be_admitted():
    request = make()
    request.admit(0, 0)
    with pytest.raises(AssertionError):
        request.admit(1, 0)
