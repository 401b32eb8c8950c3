import pytest
from hypothesis import given
from hypothesis import strategies as st

from jengine.core.queue import FcfsQueue, PriorityQueue, WaitingQueue, priority_key
from jengine.core.request import Request


def make(name, priority=0, arrival=0):
    return Request(name, [1], max_total_tokens=2, priority=priority, arrival=arrival)


def drain(queue):
    names = []
    while len(queue):
        request = queue.peek()
        queue.remove(request)
        names.append(request.request_id)
    return names


@pytest.mark.parametrize("kind", [FcfsQueue, PriorityQueue])
def test_both_are_waiting_queues(kind):
    queue = kind()
    assert isinstance(queue, WaitingQueue)
    assert len(queue) == 0
    assert list(queue) == []


def test_fcfs_serves_in_order_of_arrival():
    queue = FcfsQueue()
    for name in "cab":
        queue.push(make(name))
    assert [r.request_id for r in queue] == ["c", "a", "b"]
    assert drain(queue) == ["c", "a", "b"]


def test_c1_9_fcfs_puts_victims_back_in_their_old_order():
    queue = FcfsQueue()
    queue.push(make("waiting"))
    for name in ("third", "second"):  # the last of running is taken first
        queue.push_front(make(name))
    assert drain(queue) == ["second", "third", "waiting"]


def test_c1_8_priority_orders_by_priority_arrival_and_id():
    queue = PriorityQueue()
    keys = [("a", 1, 0), ("d", 0, 2), ("c", 0, 1), ("b", 0, 1), ("e", -1, 9)]
    for key in keys:
        queue.push(make(*key))
    assert drain(queue) == ["e", "b", "c", "d", "a"]


def test_c1_8_a_victim_competes_again_under_the_priority_policy():
    queue = PriorityQueue()
    queue.push(make("first", 0))
    queue.push_front(make("victim", 1))
    assert drain(queue) == ["first", "victim"]


def test_priority_takes_back_an_id_of_which_an_old_entry_is_left():
    queue = PriorityQueue()
    old, top = make("x", 1), make("top", 0)
    queue.push(top)
    queue.push(old)
    queue.remove(old)
    new = make("x", 1)
    queue.push(new)
    queue.remove(top)
    assert queue.peek() is new
    assert list(queue) == [new]


def test_priority_drops_entries_of_removed_requests():
    queue = PriorityQueue()
    queue.push(make("top", -1))
    for i in range(1000):
        request = make("x", arrival=i)
        queue.push(request)
        queue.remove(request)
    assert len(queue._heap) < 100
    assert drain(queue) == ["top"]


@given(st.lists(st.tuples(st.sampled_from(["push", "pop", "drop"]), st.integers(0, 5))))
def test_priority_equals_a_sorted_list(events):
    queue, model = PriorityQueue(), []
    for arrival, (event, number) in enumerate(events):
        if event == "push":
            request = make(f"r{arrival}", number % 3, arrival)
            queue.push(request)
            model.append(request)
        elif model:
            model.sort(key=priority_key)
            request = model.pop(0 if event == "pop" else number % len(model))
            if event == "pop":
                assert queue.peek() is request
            queue.remove(request)
        assert len(queue) == len(model)
        assert set(queue) == set(model)
