"""Text is made at the end of a request where nobody looks before."""

import pytest

from jengine import RequestOutputKind, SamplingParams
from jengine.core.events import TokenEvent
from jengine.core.request import FinishReason, Request
from jengine.output_processor import OutputProcessor


@pytest.fixture
def make(letters):
    """Returns a processor with one request, and a function that adds its tokens."""

    def make(**options):
        params = SamplingParams(**options)
        request = Request("a", [7, 8], max_total_tokens=90)
        processor = OutputProcessor(letters)
        processor.add("a", [request], "hi", params)

        def learn(token_id, finish=None):
            request.token_ids.append(token_id)
            if finish is not None:
                request.finish(finish, None)
            step = processor.process([TokenEvent(request, (token_id,), None)])
            processor.commit()
            return step

        return processor, request, learn

    return make


def num_taken(processor):
    (member,) = processor._live.values()
    return member.state.num_tokens


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"output_kind": RequestOutputKind.FINAL_ONLY}, 0),
        ({"output_kind": RequestOutputKind.FINAL_ONLY, "stop": ["x"]}, 2),
        ({"output_kind": RequestOutputKind.CUMULATIVE}, 2),
    ],
)
def test_only_where_nobody_looks_before(make, asked, expected):
    processor, _, learn = make(**asked)
    assert learn(0).stopped == learn(1).stopped == []
    assert num_taken(processor) == expected
    done = learn(2, FinishReason.LENGTH).outputs[0].outputs[0]
    assert (done.text, done.token_ids) == ("abc", [0, 1, 2])
    assert not processor.has("a")


def test_an_abort_gives_what_there_is(make):
    processor, request, learn = make(output_kind=RequestOutputKind.FINAL_ONLY)
    learn(0)
    learn(1)
    request.finish(FinishReason.ABORT, None)
    done = processor.last_output("a").outputs[0]
    assert (done.text, done.token_ids) == ("ab", [0, 1])
    assert done.finish_reason == "abort"


def test_a_broken_step_loses_nothing(make):
    processor, request, learn = make(output_kind=RequestOutputKind.FINAL_ONLY)
    learn(0)
    request.token_ids.append(1)
    assert processor.roll_back() == [request]
    assert processor.restore() == ([], [])
    learn(2)
    assert num_taken(processor) == 2  # restored, and then it waits again
    done = learn(3, FinishReason.LENGTH).outputs[0].outputs[0]
    assert (done.text, done.token_ids) == ("abcd", [0, 1, 2, 3])
