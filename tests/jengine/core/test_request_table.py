import pytest

from jengine.core.cache_manager import CacheManager
from jengine.core.request import FinishReason, Request, RequestStatus
from jengine.core.request_table import RequestTable


def make(*names, by_priority=False, seats=3):
    cache = CacheManager(num_blocks=20, block_size=4, enable_prefix_caching=True)
    table = RequestTable(cache, max_num_seqs=seats, by_priority=by_priority)
    requests = []
    for arrival, name in enumerate(names):
        priority = -arrival if by_priority else 0
        request = Request(
            name, [1, 2, 3], max_total_tokens=6, arrival=arrival, priority=priority
        )
        table.add(request)
        requests.append(request)
    return table, requests


def start(table, requests):
    for request in requests:
        table.cache.admit(request, [], 3)
        table.start(request, 0)
        table.check_invariants()


def test_starting_gives_each_its_own_seat():
    table, requests = make("a", "b", "c")
    start(table, requests)
    assert sorted(r.seat for r in requests) == [0, 1, 2]
    assert not table.has_free_seat
    assert len(table.waiting) == 0


def test_running_is_in_order_of_arrival_or_priority():
    for by_priority, expected in ((False, "abc"), (True, "cba")):
        table, requests = make("a", "b", "c", by_priority=by_priority)
        start(table, requests)
        assert "".join(r.request_id for r in table.running) == expected


def test_the_last_one_is_preempted_and_waits_first():
    table, requests = make("a", "b", "c")
    start(table, requests[:2])
    victim = table.preempt_last()
    assert victim is requests[1] is table.waiting.peek()
    assert victim.status is RequestStatus.PREEMPTED
    assert (table.preempted_ids, table.finished_ids) == (["b"], [])
    assert table.cache.table("b") == ()
    table.check_invariants()


@pytest.mark.parametrize("state", ["waiting", "running", "preempted"])
def test_ending_frees_all(state):
    table, requests = make("a", "b")
    if state != "waiting":
        start(table, requests)
    if state == "preempted":
        table.preempt_last()
    table.end(requests[1], FinishReason.ABORT, None)
    table.sweep()
    table.check_invariants()
    assert table.finished_ids == ["b"]
    assert [*table.running, *table.waiting] == [requests[0]]
    assert table.cache.pool.num_in_use == (state != "waiting")
    assert len(table._free_seats) == 3 - (state != "waiting")


def test_rewinding_decides_anew_who_has_ended():
    table, requests = make("a", "b", "c")
    start(table, requests)
    table.end(requests[0], FinishReason.STOP, None)  # its last token was taken back
    requests[1].token_ids += [7, 7, 7]
    table.rewind(requests)
    assert [r.is_finished for r in requests] == [False, True, False]
    left = [requests[0], requests[2]]
    assert list(table.requests.values()) == list(table.waiting) == left
    assert table.cache.pool.num_in_use == 0
    assert requests[1].finish_reason is FinishReason.LENGTH
    table.check_invariants()


def test_rewinding_keeps_the_order_of_arrival():
    table, requests = make("a", "b", "c")
    start(table, requests[:2])
    table.preempt_last()
    table.rewind(reversed(requests))
    assert list(table.waiting) == requests


def test_the_invariants_can_fail():
    table, requests = make("a", "b")
    start(table, requests[:1])
    table._free_seats.pop()
    with pytest.raises(AssertionError):
        table.check_invariants()
