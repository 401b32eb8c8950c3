import pytest

from jengine.core.plan import SamplingOptions
from jengine.core.request import FinishReason, Request
from jengine.core.stop import check_stop

EOS, STOP = 9, 8


def check(*output, most=4, stops_from=0, eos=EOS):
    request = Request(
        "a",
        [EOS, STOP],
        max_total_tokens=2 + most,
        options=SamplingOptions(stops_from=stops_from),
        eos_token_id=eos,
        stop_token_ids=frozenset({STOP}),
    )
    request.token_ids += output
    return check_stop(request)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ((1,), None),
        ((1, 2, 3), None),
        ((1, EOS), (FinishReason.STOP, None)),
        ((STOP,), (FinishReason.STOP, STOP)),
        ((EOS, 1), None),
        ((1, 2, 3, 4), (FinishReason.LENGTH, None)),
        ((1, 2, 3, EOS), (FinishReason.STOP, None)),
        ((1, 2, 3, STOP), (FinishReason.STOP, STOP)),
    ],
)
def test_stp_reasons_of_the_last_token(output, expected):
    assert check(*output) == expected


def test_the_prompt_never_ends_a_request():
    assert check() is None


def test_an_eos_that_is_ignored_is_a_token_like_others():
    assert check(EOS, eos=None) is None


@pytest.mark.parametrize(("count", "stops"), [(1, False), (2, False), (3, True)])
def test_stp_no_stop_id_counts_before_min_tokens(count, stops):
    # Two prompt tokens and two more that no stop may follow or be.
    found = check(*[1] * (count - 1), EOS, stops_from=4)
    assert found == ((FinishReason.STOP, None) if stops else None)


def test_the_length_limit_holds_before_min_tokens():
    assert check(1, 2, 3, EOS, stops_from=100) == (FinishReason.LENGTH, None)
