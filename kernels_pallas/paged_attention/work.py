"""What one program of the attention kernel does: its queries and its keys."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from kernels_pallas.paged_attention.problem import Operands, Problem


class Work(NamedTuple):
    """The tokens `token` to `end` of a row, as many as a program holds.

    Attributes:
      row: the row, negative for padding.
      token: first token.
      end: end of the row's tokens.
      seq_len: tokens of the row, earlier ones included.
      head: KV head.
      split: which share of the keys.
      is_real: whether there is anything to attend for.
    """

    row: Any
    token: Any
    end: Any
    seq_len: Any
    head: Any
    split: Any
    is_real: Any


class Rows(NamedTuple):
    """The queries of a program, one entry a row of its matrix.

    Attributes:
      token: token of the step.
      head: query head.
      is_real: whether the program has this query.
      position: position of the token in its row's sequence.
    """

    token: Any
    head: Any
    is_real: Any
    position: Any


class Span(NamedTuple):
    """The keys of a program, in tiles from `first` over `full` to `last`.

    Tile `i` starts at position `origin + i * keys`. The tiles before `full` are seen
    whole by each query. No query sees the positions from `end` on.
    """

    origin: Any
    first: Any
    full: Any
    last: Any
    end: Any


def find_work(refs: Operands, problem: Problem) -> Work:
    """Read what this program is to do."""
    index, head, split = (pl.program_id(axis) for axis in range(3))
    if problem.tiled:
        row, token = refs.tile_rows[index], refs.tile_tokens[index]
        at = jnp.maximum(row, 0)
        end = jnp.where(
            row >= 0, refs.query_start_loc[at + 1], jnp.int32(problem.num_tokens)
        )
        return Work(row, token, end, refs.seq_lens[at], head, split, row >= 0)
    seq_len = refs.seq_lens[index]
    if problem.single_token_rows:
        return Work(index, index, index + 1, seq_len, head, split, True)
    token, end = refs.query_start_loc[index], refs.query_start_loc[index + 1]
    return Work(index, token, end, seq_len, head, split, end - token == 1)


def find_rows(work: Work, problem: Problem) -> Rows:
    """Lay the program's tokens x heads out as rows of a matrix."""
    row = lax.broadcasted_iota(jnp.int32, (problem.tile.rows,), 0)
    group = jnp.int32(problem.group)
    token = work.token + lax.div(row, group)
    is_real = (token < work.end) & (row < problem.queries * problem.group)
    position = work.seq_len - work.end + token
    return Rows(token, work.head * group + lax.rem(row, group), is_real, position)


def find_span(work: Work, problem: Problem) -> Span:
    """Find the keys of the program's queries and of its share of them."""
    keys = jnp.int32(problem.tile.keys)
    before = work.seq_len - work.end  # position less token, in this row
    end = before + jnp.minimum(work.token + problem.queries, work.end)
    seen_by_first = before + work.token + 1
    origin = jnp.int32(0)
    if problem.sliding_window is not None:
        origin = jnp.maximum(seen_by_first - problem.sliding_window, 0)
    count = lax.div(end - origin + (keys - 1), keys)
    full = lax.div(seen_by_first - origin, keys)
    if problem.sliding_window is not None and problem.tiled:
        full = jnp.int32(0)  # the windows of later queries start later
    splits = problem.tile.num_splits
    if splits == 1:
        return Span(origin, jnp.int32(0), full, count, end)
    share = lax.div(count + (splits - 1), jnp.int32(splits))
    first = work.split * share
    last = jnp.minimum(first + share, count)
    return Span(origin, first, jnp.clip(full, first, last), last, end)
