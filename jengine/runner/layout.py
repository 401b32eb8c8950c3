"""Where everything lies in the packed buffers of a step, stated once.

One int32 buffer for the forward program and one for the sampler: a numpy argument
costs about 10 us, ten small ones 40 (measured on a CPU). Floats travel as their
bits.
"""

import enum
from typing import NamedTuple

from jengine.runner.bucket import StepBucket


class SamplingColumn(enum.IntEnum):
    """Columns of a packed sampling row; from TEMPERATURE on the bits of floats."""

    SEAT = 0
    POSITION = 1
    SEED_LOW = 2
    SEED_HIGH = 3
    TOP_K = 4
    BIASED = 5  # whether the seat's row of biases holds
    TEMPERATURE = 6
    TOP_P = 7
    MIN_P = 8
    PRESENCE = 9
    FREQUENCY = 10
    REPETITION = 11


class ForwardLayout(NamedTuple):
    """Sections of the forward program's buffer.

    Attributes:
      token_ids: an id, or -(seat + 1) for the token last sampled at that seat.
      query_start_loc: first token of each row, then the number of real tokens.
      seq_lens: tokens of each row after the step; 0 for padding.
      logits_indices: token whose hidden state each sampling row wants.
      block_tables: rows of block ids, padded with the null block.
      size: length of the buffer.
    """

    token_ids: slice
    query_start_loc: slice
    seq_lens: slice
    logits_indices: slice
    block_tables: slice
    size: int


def forward_layout(bucket: StepBucket) -> ForwardLayout:
    """Lay out the sections of a bucket one after another."""
    lengths = (
        bucket.tokens,
        bucket.rows + 1,
        bucket.rows,
        bucket.rows,
        bucket.rows * bucket.table_width,
    )
    sections: list[slice] = []
    start = 0
    for length in lengths:
        sections.append(slice(start, start + length))
        start += length
    return ForwardLayout(*sections, size=start)
