"""What the scheduler has done and where it stands, for users and tests."""

import dataclasses
from typing import NamedTuple

from jengine.appearance import as_html, as_text, print_pretty


class SchedulerStats(NamedTuple):
    """Counters since the scheduler was made, and gauges of this moment.

    Attributes:
      num_steps: plans made that run at least one token.
      num_scheduled_tokens: tokens that those plans ran.
      num_preemptions: times that a running request lost its blocks.
      prefix_cache_queries: prompt tokens looked up at first admissions.
      prefix_cache_hits: those of them that were cached.
      num_running: requests that hold a seat.
      num_waiting: requests that wait for one.
      num_blocks_in_use: blocks that some request holds.
      num_blocks_cached: blocks in the prefix index, in use or not.
      num_blocks: blocks that can be handed out.
    """

    num_steps: int
    num_scheduled_tokens: int
    num_preemptions: int
    prefix_cache_queries: int
    prefix_cache_hits: int
    num_running: int
    num_waiting: int
    num_blocks_in_use: int
    num_blocks_cached: int
    num_blocks: int

    __str__, _repr_html_, _repr_pretty_ = as_text, as_html, print_pretty


@dataclasses.dataclass(slots=True)
class SchedulerCounters:
    """The counting half of `SchedulerStats`, as the scheduler keeps it."""

    num_steps: int = 0
    num_scheduled_tokens: int = 0
    num_preemptions: int = 0
    prefix_cache_queries: int = 0
    prefix_cache_hits: int = 0
