import itertools

from hypothesis import given
from hypothesis import strategies as st

from jengine.bench.serve.sse import EventReader

STREAM = (
    ": ping\n\n"
    'data: {"a": "zwölf \u2028 €"}\n\n'
    "event: x\r\nid: 5\r\ndata: first\r\ndata:  second\r\n\r\n"
    "\n\n"
    "data:[DONE]\n\n"
    "data: unfinished\n"
).encode()
EVENTS = ['{"a": "zwölf \u2028 €"}', "first\n second", "[DONE]"]


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_any_pieces_give_the_same_events(cuts):
    reader, found = EventReader(), []
    edges = [0, *sorted(cuts), len(STREAM)]
    for start, end in itertools.pairwise(edges):
        found += reader.feed(STREAM[start:end])
    assert found == EVENTS


def test_byte_by_byte():
    reader = EventReader()
    found = [e for i in range(len(STREAM)) for e in reader.feed(STREAM[i : i + 1])]
    assert found == EVENTS
