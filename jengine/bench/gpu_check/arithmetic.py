"""Bytes that attention must move, operations that it must do, and what a card does.

What a step of a whole model takes is `jengine.aot.cost`'s to say. Pure.
"""

from collections.abc import Sequence
from typing import NamedTuple

from jengine.aot.cost import Work


class Ceiling(NamedTuple):
    """What a device was measured to do.

    Attributes:
      bytes_per_s: of a large copy, bytes read plus bytes written.
      flops_per_s: of a large matrix product.
    """

    bytes_per_s: float
    flops_per_s: float

    def seconds(self, work: Work) -> float:
        """Return the least time for some work: the longer of its two floors."""
        return work.seconds(self.bytes_per_s, self.flops_per_s)


class Heads(NamedTuple):
    """The attention heads of one layer.

    Attributes:
      num_heads: query heads.
      num_kv_heads: key and value heads.
      head_dim: features of a head.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int

    @property
    def group(self) -> int:
        """Query heads of one KV head."""
        return self.num_heads // self.num_kv_heads


def attention_work(
    heads: Heads, rows: Sequence[tuple[int, int]], *, itemsize: int
) -> Work:
    """Return what attention of one layer over a paged cache takes.

    Queries and each key and value are read once, the result is written once; a
    multiplication and an addition are two operations.

    Args:
      heads: of the layer.
      rows: for each row the tokens before the step and those of the step.
      itemsize: bytes of a number, of queries, cache and result alike.
    """
    queries = sum(now for _, now in rows)
    keys = sum(before + now for before, now in rows)
    pairs = sum(now * before + now * (now + 1) // 2 for before, now in rows)
    moved = 2 * queries * heads.num_heads + 2 * keys * heads.num_kv_heads
    return Work(
        moved * heads.head_dim * itemsize, 4 * pairs * heads.num_heads * heads.head_dim
    )
