"""The waiting queue under each policy; every operation is O(log n) or better."""

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from jengine.core.request import Request


def priority_key(request: Request) -> tuple[int, int, str]:
    """Order of service under the priority policy: smaller is sooner."""
    return request.priority, request.arrival, request.request_id


@runtime_checkable
class WaitingQueue(Protocol):
    """Requests that wait for admission, in the policy's order."""

    def push(self, request: Request) -> None:
        """Add a request that has just arrived."""
        ...

    def push_front(self, request: Request) -> None:
        """Put back a request that was preempted."""
        ...

    def peek(self) -> Request:
        """Return the request to be served next; the queue is not empty."""
        ...

    def remove(self, request: Request) -> None:
        """Take a request out, wherever it stands."""
        ...

    def __len__(self) -> int:
        """Number of waiting requests."""
        ...

    def __iter__(self) -> Iterator[Request]:
        """All waiting requests, in no particular order."""
        ...


class FcfsQueue:
    """First come, first served; a preempted request goes to the front."""

    def __init__(self) -> None:
        """Make an empty queue."""
        # Not a dict: finding the first key of one is O(keys deleted before it).
        self._requests: OrderedDict[str, Request] = OrderedDict()

    def push(self, request: Request) -> None:
        """Add a request behind all others."""
        self._requests[request.request_id] = request

    def push_front(self, request: Request) -> None:
        """Put a preempted request before all others."""
        self._requests[request.request_id] = request
        self._requests.move_to_end(request.request_id, last=False)

    def peek(self) -> Request:
        """Return the first request."""
        return next(iter(self._requests.values()))

    def remove(self, request: Request) -> None:
        """Take a request out, wherever it stands."""
        del self._requests[request.request_id]

    def __len__(self) -> int:
        """Number of waiting requests."""
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        """All waiting requests, first to last."""
        return iter(self._requests.values())


class PriorityQueue:
    """Smallest (priority, arrival, id) first; a preempted request competes again."""

    def __init__(self) -> None:
        """Make an empty queue."""
        # The object's own id keeps two entries of one name from being compared.
        self._heap: list[tuple[tuple[int, int, str], int, Request]] = []
        self._live: dict[str, Request] = {}

    def push(self, request: Request) -> None:
        """Add a request at its place in the order."""
        heapq.heappush(self._heap, _entry(request))
        self._live[request.request_id] = request

    push_front = push

    def peek(self) -> Request:
        """Return the request that comes first."""
        self._drop_removed()
        return self._heap[0][2]

    def remove(self, request: Request) -> None:
        """Take a request out; its heap entry goes when it reaches the top."""
        del self._live[request.request_id]
        self._drop_removed()
        # Entries of removed requests may lie below a long-lived top: keep them few.
        if len(self._heap) > 2 * len(self._live) + 64:
            self._heap = [_entry(r) for r in self._live.values()]
            heapq.heapify(self._heap)

    def __len__(self) -> int:
        """Number of waiting requests."""
        return len(self._live)

    def __iter__(self) -> Iterator[Request]:
        """All waiting requests, in no particular order."""
        return iter(self._live.values())

    def _drop_removed(self) -> None:
        while self._heap:
            request = self._heap[0][2]
            if self._live.get(request.request_id) is request:
                return
            heapq.heappop(self._heap)


def _entry(request: Request) -> tuple[tuple[int, int, str], int, Request]:
    return priority_key(request), id(request), request
