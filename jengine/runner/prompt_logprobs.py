"""Reports on tokens of prompts: what the model thought of each before it came.

A prompt's tokens are not drawn, so their logits are wanted by nobody else. They are
made some at a time, for the rows of [targets, vocabulary] would not fit for all.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from jengine.core.plan import PromptLogprobs, StepPlan
from jengine.logprobs import LogprobsMode
from jengine.runner.results import line_logprobs
from jengine.runner.sample import report
from models.layers.linear import matmul

TARGETS = 64  # that one call of the program reports on


class ReportedPrompt(NamedTuple):
    """A prompt that is to be reported on.

    Attributes:
      token_ids: the prompt.
      num_logprobs: alternatives that were asked for.
    """

    token_ids: tuple[int, ...]
    num_logprobs: int


class PromptPart(NamedTuple):
    """What one row of a step shows of its prompt.

    Attributes:
      row: number of the row.
      seat: of the row.
      start: position of the first token that it explains.
      token_ids: these tokens.
      first_index: token of the step whose logits explain the first of them.
      num_logprobs: alternatives that were asked for.
    """

    row: int
    seat: int
    start: int
    token_ids: tuple[int, ...]
    first_index: int
    num_logprobs: int


def prompt_parts(
    plan: StepPlan, prompts: Mapping[int, ReportedPrompt]
) -> list[PromptPart]:
    """Find what a step shows of prompts; a token is explained by the one before it.

    Args:
      plan: the step.
      prompts: those to be reported on, by seat.
    """
    parts: list[PromptPart] = []
    index = 0
    for number, row in enumerate(plan.rows):
        prompt = prompts.get(row.seat)
        start = row.num_computed_tokens + 1
        if prompt is not None:
            explained = prompt.token_ids[start : start + row.num_tokens]
            if explained:
                parts.append(
                    PromptPart(
                        number, row.seat, start, explained, index, prompt.num_logprobs
                    )
                )
        index += row.num_tokens
    return parts


def pack_targets(parts: Sequence[PromptPart]) -> list[np.ndarray]:
    """Pack parts for calls of `prompt_logprobs`.

    Returns:
      int32 arrays of [TARGETS, 2]: a token of the step, and the id that follows it.
      The last one is padded with zeros.
    """
    pairs = [
        (part.first_index + i, token_id)
        for part in parts
        for i, token_id in enumerate(part.token_ids)
    ]
    packed = np.zeros((-(-len(pairs) // TARGETS) * TARGETS, 2), np.int32)
    packed[: len(pairs)] = pairs
    return np.split(packed, len(packed) // TARGETS)


def unpack_targets(
    parts: Sequence[PromptPart], outs: Sequence[np.ndarray]
) -> tuple[tuple[int, PromptLogprobs], ...]:
    """Give each part its lines of what the calls returned."""
    lines = np.concatenate(outs)
    found: list[tuple[int, PromptLogprobs]] = []
    first = 0
    for part in parts:
        last = first + len(part.token_ids)
        entries = [line_logprobs(line, part.num_logprobs) for line in lines[first:last]]
        found.append((part.row, PromptLogprobs(part.start, tuple(entries))))
        first = last
    return tuple(found)


def prompt_logprobs(
    num_logprobs: int,
    values: LogprobsMode,
    head: Float[Array, "V M"],
    states: Float[Array, "T M"],
    targets: Int[Array, "N 2"],
    *,
    split_over: str | None = None,
) -> Int[Array, "N out"]:
    """Report on tokens of prompts.

    Args:
      num_logprobs: static; alternatives reported.
      values: static; of the raw logits, whatever it says of processed ones.
      head: weight from hidden states to logits.
      states: hidden states of a step's tokens.
      targets: see `pack_targets`.
      split_over: as for `jengine.runner.step.sample`.

    Returns:
      The id, then what `report` says of it.
    """
    wanted = states.at[targets[:, 0]].get(mode="clip", wrap_negative_indices=False)
    logits = matmul(wanted, head, out_dtype=jnp.dtype(jnp.float32))
    if split_over is not None:
        logits = lax.all_gather(logits, split_over, axis=1, tiled=True)
    token = targets[:, 1]
    found = report(logits, token, num_logprobs, values)
    return jnp.concatenate([token[:, None], found], axis=1)
