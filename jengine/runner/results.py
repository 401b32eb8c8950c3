"""What the sampler returned, as a step result: pure."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jengine.core.plan import StepResult, TokenLogprobs
from jengine.logprobs import MOST_LISTED_IDS


class Wanted(NamedTuple):
    """What one row wants reported.

    Attributes:
      num_logprobs: best ids; -1 for a row that wants nothing.
      listed_ids: further ids.
    """

    num_logprobs: int
    listed_ids: tuple[int, ...] = ()


def unpack_result(
    out: np.ndarray | None,
    *,
    step: int,
    num_rows: int,
    sampling_rows: Sequence[int],
    lines: Sequence[int],
    wanted: Sequence[Wanted] | None,
    vocab_size: int,
) -> StepResult:
    """Put the sampler's lines back in the order of the plan's rows.

    Args:
      out: what `jengine.runner.step.sample` returned; None if no row samples.
      step: number of the step.
      num_rows: rows of the plan.
      sampling_rows: rows that sample, ascending.
      lines: the line of `out` that belongs to each of them.
      wanted: what each of them wants reported; None when none does.
      vocab_size: an id of this value says that the logits were not numbers.
    """
    if out is None:
        return StepResult(step, ((),) * num_rows)
    tokens = out[:, 0].tolist()
    if len(sampling_rows) == num_rows:
        ids = tuple(zip(tokens[:num_rows], strict=True))
    else:
        places: list[tuple[int, ...]] = [()] * num_rows
        for row, line in zip(sampling_rows, lines, strict=True):
            places[row] = (tokens[line],)
        ids = tuple(places)
    failed: tuple[int, ...] = ()
    if vocab_size in tokens:
        failed = tuple(row for row in sampling_rows if ids[row] == (vocab_size,))
        ids = tuple(() if one == (vocab_size,) else one for one in ids)
    logprobs = None
    if wanted is not None:
        logprobs = _logprobs(out, num_rows, sampling_rows, lines, wanted)
    return StepResult(step, ids, logprobs, failed)


def _logprobs(
    out: np.ndarray,
    num_rows: int,
    sampling_rows: Sequence[int],
    lines: Sequence[int],
    wanted: Sequence[Wanted],
) -> tuple[TokenLogprobs | None, ...]:
    places: list[TokenLogprobs | None] = [None] * num_rows
    # The program listed ids for every row if one row asked for it.
    has_list = any(one.listed_ids for one in wanted)
    for row, line, one in zip(sampling_rows, lines, wanted, strict=True):
        if one.num_logprobs < 0:
            continue
        best = out[line]
        if has_list:
            best = best[:-MOST_LISTED_IDS]
        found = line_logprobs(best, one.num_logprobs)
        if one.listed_ids:
            values = out[line][-MOST_LISTED_IDS:].view(np.float32)
            found = add_listed(found, one.listed_ids, values.tolist())
        places[row] = found
    return tuple(places)


def add_listed(
    found: TokenLogprobs, listed_ids: Sequence[int], values: Sequence[float]
) -> TokenLogprobs:
    """Add ids that are not among those found; their ranks nobody counted."""
    new = {
        token_id: value
        for token_id, value in zip(listed_ids, values, strict=False)
        if token_id not in found.token_ids
    }
    return found._replace(
        token_ids=(*found.token_ids, *new),
        logprobs=(*found.logprobs, *new.values()),
        ranks=(*found.ranks, *[None] * len(new)),
    )


def line_logprobs(line: np.ndarray, wanted: int) -> TokenLogprobs:
    """Take one line apart: id, rank, value bits, best ids, bits of their values."""
    token, rank = int(line[0]), int(line[1])
    value = float(line[2:3].view(np.float32)[0])
    width = (len(line) - 3) // 2
    ids = line[3 : 3 + wanted].tolist()
    best = line[3 + width : 3 + width + wanted].view(np.float32).tolist()
    # Equal values share the rank of the first of them.
    ranks = [1 + best.index(b) if b == b else 1 + i for i, b in enumerate(best)]
    if token not in ids:
        ids, best, ranks = [*ids, token], [*best, value], [*ranks, rank]
    return TokenLogprobs(tuple(ids), tuple(best), tuple(ranks), value)
