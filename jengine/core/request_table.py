"""Every live request: who waits, who runs on which seat, and their blocks.

Changes here are whole moves of one request (add, start, preempt, end). Which
move to make, and when, is the scheduler's business.
"""

import bisect
from collections.abc import Iterable

from jengine.core.cache_manager import CacheManager
from jengine.core.events import RequestObserver
from jengine.core.queue import FcfsQueue, PriorityQueue, WaitingQueue, priority_key
from jengine.core.request import FinishReason, Request, RequestStatus
from jengine.core.stop import check_stop


class RequestTable:
    """Queues, seats and blocks, which change together.

    Attributes:
      requests: all live requests by id.
      waiting: those without a seat, in the policy's order.
      running: those with one, in the policy's order; the last is the first to be
        preempted.
      cache: their block tables.
      finished_ids: requests ended since the last plan that had rows.
      preempted_ids: requests preempted since then.
      observer: is told of admissions, preemptions and ends.
    """

    def __init__(
        self, cache: CacheManager, *, max_num_seqs: int, by_priority: bool
    ) -> None:
        """Make a table without requests.

        Args:
          cache: a manager without tables.
          max_num_seqs: number of seats.
          by_priority: whether order is by priority, else by arrival.
        """
        self.cache = cache
        self._max_num_seqs = max_num_seqs
        self._by_priority = by_priority
        self.requests: dict[str, Request] = {}
        self.finished_ids: list[str] = []
        self.observer: RequestObserver | None = None
        self._clear()

    def _clear(self) -> None:
        self.waiting: WaitingQueue = (
            PriorityQueue() if self._by_priority else FcfsQueue()
        )
        self.running: list[Request] = []
        self.preempted_ids: list[str] = []
        self._free_seats = list(range(self._max_num_seqs - 1, -1, -1))

    @property
    def has_free_seat(self) -> bool:
        """Whether one more request can run."""
        return bool(self._free_seats)

    def add(self, request: Request) -> None:
        """Let a new request wait."""
        self.requests[request.request_id] = request
        self.waiting.push(request)

    def start(self, request: Request, num_cached_tokens: int) -> None:
        """Give a waiting request a seat."""
        self.waiting.remove(request)
        request.admit(self._free_seats.pop(), num_cached_tokens)
        if self.observer is not None:
            self.observer.admitted(request)
        if self._by_priority:
            bisect.insort(self.running, request, key=priority_key)
        else:
            self.running.append(request)

    def preempt_last(self) -> Request:
        """Take seat and blocks from the last running request; it waits again."""
        victim = self.running.pop()
        self.cache.release(victim)
        self._leave_seat(victim)
        victim.preempt()
        self.waiting.push_front(victim)
        self.preempted_ids.append(victim.request_id)
        if self.observer is not None:
            self.observer.preempted(victim)
        return victim

    def end(
        self, request: Request, reason: FinishReason, stop_reason: int | str | None
    ) -> None:
        """End a live request, whatever it is doing.

        An ended request stays in `running` until `sweep`, so that several can end in
        one step without a search for each.
        """
        if request.status is not RequestStatus.RUNNING:
            self.waiting.remove(request)
        self.cache.release(request)
        self._leave_seat(request)
        request.finish(reason, stop_reason)
        del self.requests[request.request_id]
        self.finished_ids.append(request.request_id)
        if self.observer is not None:
            self.observer.ended(request)

    def end_if_stopped(self, request: Request) -> bool:
        """End a request whose last token says so."""
        stop = check_stop(request)
        if stop is not None:
            self.end(request, *stop)
        return stop is not None

    def sweep(self) -> None:
        """Drop ended requests from `running`."""
        self.running = [r for r in self.running if not r.is_finished]

    def rewind(self, requests: Iterable[Request]) -> None:
        """Start these requests over, with their known tokens, on a new pool.

        Those that the broken step ended are ended again if their tokens say so; what
        else it did is forgotten.
        """
        self.cache = self.cache.empty_copy()
        self._clear()
        self.requests = {}
        listed = sorted(requests, key=lambda r: r.arrival)
        revived = {r.request_id for r in listed if r.is_finished}
        self.finished_ids = [i for i in self.finished_ids if i not in revived]
        for request in listed:
            request.rewind()
            self.add(request)
            self.end_if_stopped(request)

    def check_invariants(self) -> None:
        """Assert what must hold between any two moves."""
        self.cache.check_invariants()
        seats = [r.seat for r in self.running if r.seat is not None]
        assert len(seats) == len(self.running)
        assert sorted([*seats, *self._free_seats]) == list(range(self._max_num_seqs))
        queued = [*self.running, *self.waiting]
        assert sorted(r.request_id for r in queued) == sorted(self.requests)
        for request in self.running:
            assert request.status is RequestStatus.RUNNING
            table = self.cache.table(request.request_id)
            assert request.num_slots == len(table) * self.cache.block_size
            assert request.num_computed_tokens <= request.num_slots
            assert request.num_computed_tokens <= request.num_expected_tokens
        for request in self.waiting:
            assert not self.cache.table(request.request_id)
            assert request.num_computed_tokens == 0

    def _leave_seat(self, request: Request) -> None:
        if request.seat is not None:
            self._free_seats.append(request.seat)
