"""Steps over a paged cache in which whatever nobody may read is poisoned.

Slots that hold no token are NaN (for integers the largest value, under a NaN scale),
entries of block tables that name no block point far outside the cache, and the first
and the last block, where an index that runs off would land, hold nothing.
"""

import dataclasses
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

WILD_BLOCK = 2**29
_PADDING_ROWS = 2
_PADDING_TOKENS = 3


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCase:
    """A step, as sizes.

    Attributes:
      name: what is special about it.
      rows: for each row the tokens before the step and those of the step; rows with
        one token come first.
      heads: query heads.
      kv_heads: key and value heads.
      head_dim: features of a head.
      block_size: tokens of a block.
      sliding_window: last positions that a query sees.
      soft_cap: bound that scores approach.
      sinks: whether each head has a sink.
    """

    name: str
    rows: tuple[tuple[int, int], ...]
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    block_size: int = 16
    sliding_window: int | None = None
    soft_cap: float | None = None
    sinks: bool = False

    @property
    def has_single_token_rows(self) -> bool:
        """Whether each row has one token."""
        return all(now == 1 for _, now in self.rows)

    @property
    def num_tokens(self) -> int:
        """Tokens of the step, without padding."""
        return sum(now for _, now in self.rows)

    @property
    def scale(self) -> float:
        """The factor on the scores."""
        return self.head_dim**-0.5


class StepArrays(NamedTuple):
    """The arrays of a step, numpy's or jax's (letters: docs/notation.md).

    Attributes:
      queries: [T, H, D], NaN for padding.
      keys: [N, K, B, D].
      values: [N, K, B, D].
      block_tables: [R, P].
      query_start_loc: [R+1].
      seq_lens: [R].
      key_scales: [N, K, B] float32, None unless keys are of one byte.
      value_scales: likewise.
      sinks: [H] float32, None where there are none.
    """

    queries: Any
    keys: Any
    values: Any
    block_tables: Any
    query_start_loc: Any
    seq_lens: Any
    key_scales: Any
    value_scales: Any
    sinks: Any


def make_arrays(case: AttentionCase, dtype: str, *, seed: int = 0) -> StepArrays:
    """Make a step's arrays.

    Args:
      case: the step.
      dtype: of the cache, and of the queries unless it has one byte: then they are
        bfloat16 and the cache has scales.
      seed: of the numbers.
    """
    rng = np.random.default_rng(seed)
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    is_small = kind.itemsize == 1
    lens = [before + now for before, now in case.rows]
    tables = _tables(rng, lens, case.block_size)
    num_blocks = sum(-(-n // case.block_size) for n in lens) + 4
    used = _used_slots(tables, lens, num_blocks, case.block_size)
    shape = (num_blocks, case.kv_heads, case.block_size, case.head_dim)
    padding = 0 if case.has_single_token_rows else _PADDING_TOKENS
    starts = np.cumsum([0, *(now for _, now in case.rows), *[0] * _PADDING_ROWS])
    if case.has_single_token_rows:  # there a row is a token, padding too
        padding = _PADDING_ROWS
    queries = _normal(rng, (case.num_tokens + padding, case.heads, case.head_dim))
    queries[case.num_tokens :] = np.nan
    keys, values = (_cache(rng, shape, kind, used) for _ in range(2))
    key_scales, value_scales = (
        _scales(rng, shape[:3], kind, used) if is_small else None for _ in range(2)
    )
    return StepArrays(
        queries=queries.astype(ml_dtypes.bfloat16 if is_small else kind),
        keys=keys,
        values=values,
        block_tables=tables,
        query_start_loc=starts.astype(np.int32),
        seq_lens=np.array([*lens, *[0] * _PADDING_ROWS], np.int32),
        key_scales=key_scales,
        value_scales=value_scales,
        sinks=_normal(rng, (case.heads,)) if case.sinks else None,
    )


def _tables(rng: np.random.Generator, lens: list[int], block_size: int) -> np.ndarray:
    counts = [-(-n // block_size) for n in lens]
    ids = iter(1 + rng.permutation(sum(counts) + 2))  # neither the first nor the last
    tables = np.full((len(lens) + _PADDING_ROWS, max(counts) + 3), WILD_BLOCK, np.int32)
    for row, count in enumerate(counts):
        tables[row, :count] = [next(ids) for _ in range(count)]
    return tables


def _used_slots(
    tables: np.ndarray, lens: list[int], num_blocks: int, block_size: int
) -> np.ndarray:
    used = np.zeros((num_blocks, block_size), np.bool_)
    for row, length in enumerate(lens):
        position = np.arange(length)
        used[tables[row, position // block_size], position % block_size] = True
    return used


def _cache(
    rng: np.random.Generator, shape: tuple[int, ...], kind: np.dtype, used: np.ndarray
) -> np.ndarray:
    if kind == np.int8:
        values: Any = rng.integers(-100, 100, shape).astype(np.float32)
    else:
        values = _normal(rng, shape)
    poison = 127 if kind == np.int8 else np.nan
    hidden = np.broadcast_to(~used[:, None, :, None], shape)
    return np.where(hidden, np.float32(poison), values).astype(kind)


def _scales(
    rng: np.random.Generator, shape: tuple[int, ...], kind: np.dtype, used: np.ndarray
) -> np.ndarray:
    size = 0.02 if kind == np.int8 else 1.0
    scales = rng.uniform(0.5, 1.5, shape).astype(np.float32) * np.float32(size)
    hidden = np.broadcast_to(~used[:, None, :], shape)
    return np.where(hidden, np.float32(np.nan), scales)


def _normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32)
