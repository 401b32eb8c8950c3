"""How often a stream brings something: every so many tokens, the first and the last."""

import pytest

from jengine import RequestOutputKind, SamplingParams
from jengine.core.events import TokenEvent
from jengine.core.request import FinishReason, Request
from jengine.output_processor import OutputProcessor


@pytest.mark.parametrize(
    "kind", [RequestOutputKind.DELTA, RequestOutputKind.CUMULATIVE]
)
@pytest.mark.parametrize(
    ("engine", "own", "interval"), [(3, None, 3), (2, 4, 4), (4, 2, 4), (1, None, 1)]
)
def test_outputs_come_in_intervals(letters, kind, engine, own, interval):
    processor = OutputProcessor(letters, stream_interval=engine)
    params = SamplingParams(output_kind=kind, stream_interval=own)
    request = Request("r", [7], max_total_tokens=20)
    processor.add("r", [request], None, params)
    numbers, text = [], ""
    for number in range(1, 11):
        request.token_ids.append(number - 1)
        if number == 10:
            request.finish(FinishReason.LENGTH, None)
        event = TokenEvent(request, (number - 1,), None)
        for output in processor.process([event]).outputs:
            numbers.append(number)
            (one,) = output.outputs
            text = text + one.text if kind is RequestOutputKind.DELTA else one.text
        processor.commit()
    assert numbers == sorted({1, *range(1 + interval, 10, interval), 10})
    assert text == "abcdefghij"
