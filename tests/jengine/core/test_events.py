from jengine.core.events import TokenEvent
from jengine.core.request import Request


def test_an_event_names_its_request_and_news():
    request = Request("a", [1], max_total_tokens=2)
    event = TokenEvent(request, (7,), None)
    assert event.request is request
    assert (event.token_ids, event.logprobs) == ((7,), None)
