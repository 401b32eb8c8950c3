"""(plan, mirror, bucket) -> packed numpy buffers: pure functions.

Padding points at the null block or at an index past the end, never at -1: in JAX
an index of -1 writes the last element, even where out-of-range ones are dropped.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from jengine.core.plan import SamplingOptions, StepPlan
from jengine.logprobs import MOST_LISTED_IDS
from jengine.runner.bucket import Buckets, StepBucket
from jengine.runner.layout import SamplingColumn, forward_layout
from jengine.runner.mirror import SeatMirror, float_columns

_NEUTRAL = float_columns(SamplingOptions(temperature=1.0))  # nothing divides by 0


class RowArrays(NamedTuple):
    """What both buffers need of the rows.

    Attributes:
      seats: the seat of each row.
      counts: tokens that each row runs.
      ends: tokens of each row after the step; also the position of what it samples.
      sampling_rows: rows that sample, ascending.
      all_carry: whether every row runs the token last sampled at its seat.
    """

    seats: np.ndarray
    counts: np.ndarray
    ends: np.ndarray
    sampling_rows: Sequence[int]
    all_carry: bool


class PackedStep(NamedTuple):
    """A step as its programs read it.

    Attributes:
      bucket: padded sizes of the forward program.
      ints: what the forward program reads.
      rows: the plan's rows.
      sampling: what the sampler reads; None when no row samples.
    """

    bucket: StepBucket
    ints: np.ndarray
    rows: RowArrays
    sampling: np.ndarray | None


def pack_step(plan: StepPlan, mirror: SeatMirror, buckets: Buckets) -> PackedStep:
    """Choose the step's bucket and pack both buffers.

    Args:
      plan: a step with at least one row.
      mirror: the seats, this plan already applied.
      buckets: the sizes that there are programs for.
    """
    arrays = row_arrays(plan)
    bucket = buckets.for_step(
        num_rows=len(plan.rows),
        num_tokens=plan.num_tokens,
        longest_table=int(mirror.num_blocks[arrays.seats].max()),
    )
    ints = pack_forward(plan, mirror, bucket, arrays)
    num_sampling = len(arrays.sampling_rows)
    if not num_sampling:
        return PackedStep(bucket, ints, arrays, None)
    single = bucket.single_token_rows
    num_lines = bucket.rows if single else buckets.for_sampling(num_sampling)
    sampling = pack_sampling(mirror, arrays, num_rows=num_lines, keep_places=single)
    return PackedStep(bucket, ints, arrays, sampling)


def row_arrays(plan: StepPlan) -> RowArrays:
    """Turn the rows' numbers into arrays, once a step.

    Columns are taken out by one `zip`: a loop over 256 rows for each of them would
    cost more than all the arrays do.
    """
    _, seats, computed, _, carries, _, samples, *_ = zip(*plan.rows, strict=True)
    num_rows, num_single = len(seats), plan.num_single_token_rows
    counts = np.ones(num_rows, np.int32)
    if num_single < num_rows:
        counts[num_single:] = [row.num_tokens for row in plan.rows[num_single:]]
    return RowArrays(
        seats=np.array(seats, np.int32),
        counts=counts,
        ends=np.array(computed, np.int32) + counts,
        sampling_rows=(
            range(num_rows)
            if all(samples)
            else [row for row, does in enumerate(samples) if does]
        ),
        all_carry=num_single == num_rows and all(carries),
    )


def pack_forward(
    plan: StepPlan,
    mirror: SeatMirror,
    bucket: StepBucket,
    arrays: RowArrays,
) -> np.ndarray:
    """Pack what the forward program reads.

    Args:
      plan: the step.
      mirror: the seats, this plan already applied.
      bucket: padded sizes that hold the step.
      arrays: the plan's rows. The hidden states wanted are those of the sampling
        rows, in order; in a bucket with one token a row, those of all rows.

    Returns:
      int32 buffer laid out by `forward_layout`.
    """
    layout = forward_layout(bucket)
    out = np.zeros(layout.size, np.int32)
    num_rows = len(plan.rows)
    out[: plan.num_tokens] = -arrays.seats - 1 if arrays.all_carry else _token_ids(plan)
    starts = out[layout.query_start_loc]
    np.cumsum(arrays.counts, out=starts[1 : num_rows + 1])
    starts[num_rows + 1 :] = plan.num_tokens
    out[layout.seq_lens][:num_rows] = arrays.ends
    if bucket.single_token_rows:
        out[layout.logits_indices] = np.arange(bucket.rows, dtype=np.int32)
    else:
        last_tokens = starts[1:][list(arrays.sampling_rows)] - 1
        out[layout.logits_indices][: len(last_tokens)] = last_tokens
    _fill_tables(out[layout.block_tables], mirror, bucket, arrays.seats)
    return out


def pack_sampling(
    mirror: SeatMirror,
    arrays: RowArrays,
    *,
    num_rows: int,
    keep_places: bool,
) -> np.ndarray:
    """Pack what the sampler reads, one line a row.

    Args:
      mirror: the seats, the step's plan already applied.
      arrays: the plan's rows.
      num_rows: padded rows.
      keep_places: whether line i is row i, so that rows that do not sample leave
        a padding line; else the sampling rows lie without gaps.

    Returns:
      int32 buffer of `num_rows` lines of `SamplingColumn`. A padding line has a
      seat past the end, and options that divide by nothing.
    """
    out = np.zeros((num_rows, len(SamplingColumn)), np.int32)
    out[:, SamplingColumn.SEAT] = len(mirror.num_blocks)
    out[:, SamplingColumn.TEMPERATURE :] = _NEUTRAL
    count = len(arrays.sampling_rows)
    all_sample = count == len(arrays.seats)
    rows = slice(count) if all_sample else list(arrays.sampling_rows)
    seats = arrays.seats[rows]
    filled = mirror.sampling[seats]
    filled[:, SamplingColumn.SEAT] = seats
    filled[:, SamplingColumn.POSITION] = arrays.ends[rows]
    out[rows if keep_places else slice(count)] = filled
    return out


def pack_mask(
    sampling: np.ndarray, mirror: SeatMirror, *, vocab_size: int
) -> np.ndarray | None:
    """Pack which ids each sampling row may draw, one bit an id.

    Returns:
      int32 of [rows, words]; bit i of word w allows id 32 w + i. None when every
      row may draw every id.
    """
    num_seats = len(mirror.num_blocks)
    seats = sampling[:, SamplingColumn.SEAT]
    positions = sampling[:, SamplingColumn.POSITION]
    real = seats < num_seats
    early = np.zeros(len(seats), np.bool_)
    early[real] = positions[real] < mirror.stops_from[seats[real]]
    if not early.any():
        return None
    mask = no_mask(len(seats), vocab_size)
    for line in np.nonzero(early)[0]:
        ids = np.array(mirror.stop_ids[seats[line]], np.int32)
        bits = np.left_shift(np.int32(1), ids % 32, dtype=np.int32)
        np.bitwise_and.at(mask[line], ids // 32, ~bits)
    return mask


@runtime_checkable
class Constraint(Protocol):
    """What decides which ids a row may draw, besides its options."""

    def restrict(self, mask: np.ndarray) -> None:
        """Clear the bits of ids that may not be drawn."""
        ...


def restrict(mask: np.ndarray, constraints: Sequence[Constraint]) -> np.ndarray:
    """Return one row's mask under its constraints.

    Where the mask and the constraints together leave nothing, the constraints win: a
    text that is complete has to end, whatever `min_tokens` says.
    """
    allowed = np.full_like(mask, -1)
    for constraint in constraints:
        constraint.restrict(allowed)
    both = allowed & mask
    return both if both.any() else allowed


def pack_listed(
    listed_ids: Sequence[tuple[int, ...]], lines: Sequence[int], *, num_rows: int
) -> np.ndarray:
    """Pack the ids that sampling rows want reported besides.

    Args:
      listed_ids: of each sampling row.
      lines: its line.
      num_rows: padded rows.

    Returns:
      int32 of [num_rows, MOST_LISTED_IDS], padded with zeros.
    """
    out = np.zeros((num_rows, MOST_LISTED_IDS), np.int32)
    for line, ids in zip(lines, listed_ids, strict=True):
        out[line, : len(ids)] = ids
    return out


def no_mask(num_rows: int, vocab_size: int) -> np.ndarray:
    """Return a mask that allows every id."""
    return np.full((num_rows, -(-vocab_size // 32)), -1, np.int32)


def _token_ids(plan: StepPlan) -> list[int]:
    num_single = plan.num_single_token_rows
    single = [-row[1] - 1 if row[4] else row[3][0] for row in plan.rows[:num_single]]
    long = plan.rows[plan.num_single_token_rows :]
    return [*single, *itertools.chain.from_iterable(_row_tokens(row) for row in long)]


def _row_tokens(row) -> Sequence[int]:
    return (-(row.seat + 1), *row.token_ids) if row.carries else row.token_ids


def _fill_tables(
    section: np.ndarray, mirror: SeatMirror, bucket: StepBucket, seats: np.ndarray
) -> None:
    """Copy the rows' block tables; what is stale in a seat becomes padding."""
    num_blocks = mirror.num_blocks[seats]
    longest = int(num_blocks.max())
    tables = mirror.block_tables[seats, :longest]
    tables *= np.arange(longest, dtype=np.int32) < num_blocks[:, None]
    padded = section.reshape(bucket.rows, bucket.table_width)
    padded[: len(seats), :longest] = tables
