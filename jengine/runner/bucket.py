"""Padded sizes, and the choice among them.

A compiled program exists for each bucket, so the sizes are few: dense where
padding costs most (small decode batches), powers of two elsewhere. The counts of
forward and sampling programs add up, they do not multiply.
"""

import bisect
import dataclasses
import itertools
import operator
from typing import NamedTuple

_DECODE_ROWS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_SMALLEST_TOKENS = 16
_HALF_STEPS_FROM, _QUARTER_STEPS_FROM = 128, 512
FEWEST_ROWS_ON_GPU = 2
_NARROW_TABLE = 128


class StepBucket(NamedTuple):
    """Padded sizes of one forward program.

    Attributes:
      single_token_rows: whether each row runs one token, so `tokens` equals `rows`.
      tokens: padded tokens (T).
      rows: padded rows (R).
      table_width: padded blocks of a row (P).
    """

    single_token_rows: bool
    tokens: int
    rows: int
    table_width: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """The sizes for which programs exist, each list ascending.

    Attributes:
      rows: for steps whose rows run one token each, and for sampling.
      tokens: for all other steps, at the largest number of rows.
      table_widths: blocks of a row.
    """

    rows: tuple[int, ...]
    tokens: tuple[int, ...]
    table_widths: tuple[int, ...]

    @property
    def max_rows(self) -> int:
        """Rows of the largest bucket."""
        return self.rows[-1]

    def for_step(
        self, *, num_rows: int, num_tokens: int, longest_table: int
    ) -> StepBucket:
        """Choose the smallest bucket that holds a step.

        Raises:
          ValueError: the step is larger than every bucket.
        """
        width = _smallest(self.table_widths, longest_table)
        if num_tokens == num_rows:
            rows = _smallest(self.rows, num_rows)
            return StepBucket(True, rows, rows, width)
        tokens = _smallest(self.tokens, num_tokens)
        return StepBucket(False, tokens, self.max_rows, width)

    def for_sampling(self, num_rows: int) -> int:
        """Choose the smallest number of rows that holds these.

        Raises:
          ValueError: more rows than the largest bucket has.
        """
        return _smallest(self.rows, num_rows)

    def steps(self) -> tuple[StepBucket, ...]:
        """All forward buckets, those with one token a row first."""
        single = [
            StepBucket(True, r, r, w) for w in self.table_widths for r in self.rows
        ]
        mixed = [
            StepBucket(False, t, self.max_rows, w)
            for w in self.table_widths
            for t in self.tokens
        ]
        return (*single, *mixed)


def make_buckets(
    *,
    max_num_seqs: int,
    token_budget: int,
    max_blocks: int,
    between: bool = False,
    fewest_rows: int = 1,
) -> Buckets:
    """Choose the sizes for an engine's limits.

    Args:
      max_num_seqs: most rows of a step.
      token_budget: most tokens of a step.
      max_blocks: most blocks of a row.
      between: put sizes between the powers of two, one from 128 tokens and three
        from 512. Worth the further programs where a step takes as long as its padded
        tokens, and where programs are compiled when they are first used.
      fewest_rows: rows of the smallest bucket, where there are so many.
    """
    more = range(_DECODE_ROWS[-1] + 128, max_num_seqs, 128)
    rows = [r for r in (*_DECODE_ROWS, *more) if fewest_rows <= r < max_num_seqs]
    tokens = _token_sizes(token_budget, between=between)
    widths = [w for w in (_NARROW_TABLE,) if 2 * w <= max_blocks]
    return Buckets(
        rows=(*rows, max_num_seqs),
        tokens=tokens,
        table_widths=(*widths, max_blocks),
    )


def _token_sizes(token_budget: int, *, between: bool) -> tuple[int, ...]:
    largest = max(_SMALLEST_TOKENS, token_budget)
    doubled = itertools.accumulate(
        itertools.repeat(2), operator.mul, initial=_SMALLEST_TOKENS
    )
    sizes = list(itertools.takewhile(lambda size: size < largest, doubled))
    if between:
        halves = [3 * size // 2 for size in sizes if size >= _HALF_STEPS_FROM]
        large = [size for size in sizes if size >= _QUARTER_STEPS_FROM]
        sizes += [*halves, *(n * size // 4 for size in large for n in (5, 7))]
    return (*sorted(size for size in sizes if size < largest), largest)


def _smallest(sizes: tuple[int, ...], needed: int) -> int:
    index = bisect.bisect_left(sizes, needed)
    if index == len(sizes):
        raise ValueError(f"{needed} is more than the largest bucket, {sizes[-1]}")
    return sizes[index]
