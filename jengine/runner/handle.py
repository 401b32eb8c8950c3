"""What the runner remembers of a step between its start and its result."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from jengine.runner.prompt_logprobs import PromptPart
from jengine.runner.results import Wanted


class StepHandle(NamedTuple):
    """A step in flight.

    Attributes:
      step: number of the step.
      num_rows: rows of its plan.
      sampling_rows: rows that sample, ascending.
      lines: where each of them lies in `out`.
      wanted: what each sampling row wants reported; None when none does.
      out: what the sampler returned, on the device; None when no row samples, or
        not yet.
      undrawn: what `draw` needs, for a step that waits for masks.
      prompt_parts: what it shows of prompts.
      prompt_outs: reports on those, on the device.
    """

    step: int
    num_rows: int
    sampling_rows: Sequence[int]
    lines: Sequence[int]
    wanted: list[Wanted] | None
    out: jax.Array | None
    undrawn: "Undrawn | None" = None
    prompt_parts: Sequence[PromptPart] = ()
    prompt_outs: Sequence[jax.Array] = ()


class Undrawn(NamedTuple):
    """A step between its forward program and its sampling program.

    Attributes:
      hidden: on the device.
      packed: what the sampler reads.
      seats: of the sampling rows.
    """

    hidden: jax.Array
    packed: np.ndarray
    seats: np.ndarray
