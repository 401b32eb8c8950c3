"""What the sampler returned, as a step result: pure."""

from collections.abc import Sequence

import numpy as np

from jengine.core.plan import StepResult, TokenLogprobs


def unpack_result(
    out: np.ndarray | None,
    *,
    step: int,
    num_rows: int,
    sampling_rows: Sequence[int],
    lines: Sequence[int],
    num_logprobs: Sequence[int] | None,
    vocab_size: int,
) -> StepResult:
    """Put the sampler's lines back in the order of the plan's rows.

    Args:
      out: what `jengine.runner.step.sample` returned; None if no row samples.
      step: number of the step.
      num_rows: rows of the plan.
      sampling_rows: rows that sample, ascending.
      lines: the line of `out` that belongs to each of them.
      num_logprobs: alternatives that each of them asked for, -1 for none; None
        when no row asked.
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
    if num_logprobs is not None:
        logprobs = _logprobs(out, num_rows, sampling_rows, lines, num_logprobs)
    return StepResult(step, ids, logprobs, failed)


def _logprobs(
    out: np.ndarray,
    num_rows: int,
    sampling_rows: Sequence[int],
    lines: Sequence[int],
    num_logprobs: Sequence[int],
) -> tuple[TokenLogprobs | None, ...]:
    places: list[TokenLogprobs | None] = [None] * num_rows
    for row, line, wanted in zip(sampling_rows, lines, num_logprobs, strict=True):
        if wanted >= 0:
            places[row] = line_logprobs(out[line], wanted)
    return tuple(places)


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
