"""Reads XLA's list of a program's launches.

XLA writes one line for each operation that the host would start on the device, in
order, with its kind, name and grid; a loop's body is listed once, indented.
"""

import collections
import re
from collections.abc import Sequence
from typing import NamedTuple

_LINE = re.compile(r"^\s*\d+: k(\w+)\s+(?:\[[^\]]*\])?\s*(\S+)?(.*)$")
_SHARED = re.compile(r"shared_memory: (\d+) bytes")

# Control flow, and the second halves of what runs in the background.
_NO_LAUNCHES = {"While", "Conditional", "Sequential", "CommandBuffer", "Call"}


class Launch(NamedTuple):
    """One operation that the host starts.

    Attributes:
      kind: XLA's word without its k, such as "CustomKernel", "Copy", "AllReduce".
      name: the kernel, or whatever XLA calls the operation.
      shared_bytes: dynamic shared memory of a block.
    """

    kind: str
    name: str
    shared_bytes: int


def parse_launches(text: str) -> tuple[Launch, ...]:
    """Return the launches in a `*.thunk_sequence.txt`."""
    found = []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None or not _is_launch(match[1]):
            continue
        shared = _SHARED.search(match[3])
        size = int(shared[1]) if shared else 0
        found.append(Launch(match[1], match[2] or match[1], size))
    return tuple(found)


def launches_per_layer(launches: Sequence[Launch], num_layers: int) -> int | None:
    """Return how many launches one layer takes.

    What a layer launches recurs in each: names that occur as often as there are
    layers. The distance between the last two is the answer that most of them give;
    among the first, launches that prepare the step may be mixed in.

    Returns:
      None where nothing recurs so, as in a program without layers.
    """
    if num_layers < 2:
        return None
    places: dict[str, list[int]] = collections.defaultdict(list)
    for place, launch in enumerate(launches):
        places[launch.name].append(place)
    votes = collections.Counter(
        found[-1] - found[-2] for found in places.values() if len(found) == num_layers
    )
    return min(votes, key=lambda gap: (-votes[gap], gap), default=None)


def _is_launch(kind: str) -> bool:
    return kind not in _NO_LAUNCHES and not kind.endswith("Done")
