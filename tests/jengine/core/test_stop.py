import pytest
from hypothesis import given
from hypothesis import strategies as st

from jengine.core.plan import SamplingOptions
from jengine.core.request import FinishReason, Repetition, Request
from jengine.core.stop import check_stop, repeats

EOS, STOP = 9, 8


def check(*output, most=4, stops_from=0, eos=EOS, repetition=None):
    request = Request(
        "a",
        [EOS, STOP],
        max_total_tokens=2 + most,
        options=SamplingOptions(stops_from=stops_from),
        eos_token_id=eos,
        stop_token_ids=frozenset({STOP}),
        repetition=repetition,
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


@given(
    st.lists(st.integers(0, 1), max_size=12),
    st.integers(1, 3),
    st.integers(0, 3),
    st.integers(2, 4),
)
def test_repetition_is_what_its_definition_says(output, least, more, count):
    sizes = range(least, least + more + 1)
    expected = any(
        len(output) >= size * count
        and output[len(output) - size * count :] == output[-size:] * count
        for size in sizes
    )
    assert repeats(output, Repetition(sizes[0], sizes[-1], count)) == expected


THRICE = Repetition(1, 2, 3)


@pytest.mark.parametrize(
    ("output", "stops"),
    [
        ((1, 1), False),
        ((1, 1, 1), True),
        ((1, 2, 1, 2, 1, 2), True),
        ((1, 2, 3), False),
    ],
)
def test_a_repetition_ends_a_request_that_asked(output, stops):
    found = check(*output, most=9, repetition=THRICE)
    assert found == (
        (FinishReason.REPETITION, "repetition_detected") if stops else None
    )
    assert check(*output, most=9) is None


def test_a_repetition_is_no_news_at_the_end_or_before_min_tokens():
    assert check(1, 1, 1, most=3, repetition=THRICE) == (FinishReason.LENGTH, None)
    assert check(1, 1, 1, most=9, stops_from=5, repetition=THRICE) is None
    assert check(1, 1, 1, 1, most=9, stops_from=5, repetition=THRICE) is not None


def test_the_prompt_is_no_part_of_a_repetition():
    # The prompt is (EOS, STOP): with them this would be two of a kind.
    assert check(3, 4, 4, most=9, repetition=Repetition(1, 9, 2)) is not None
    assert check(1, STOP - 1, most=9, repetition=Repetition(1, 9, 2)) is None
    request = Request("a", [1], max_total_tokens=9, repetition=Repetition(1, 1, 2))
    request.token_ids.append(1)
    assert check_stop(request) is None
