"""The host's copy of what every seat holds: a fold over the stream of plans."""

from collections.abc import Iterable

import numpy as np

from jengine.core.plan import SamplingOptions, ScheduledRequest, StepPlan
from jengine.runner.adjust import LARGEST
from jengine.runner.layout import SamplingColumn
from jengine.runner.prompt_logprobs import PromptPart, ReportedPrompt

RANDOM, FILTERED, LOGPROBS, ADJUSTED, LISTED = 1, 2, 4, 8, 16


class SeatMirror:
    """Block tables and sampling options by seat, ready to be gathered into rows.

    Attributes:
      block_tables: block ids of each seat; what lies past `num_blocks` is stale.
      num_blocks: blocks of each seat.
      sampling: the seat's part of a packed sampling row.
      features: which parts of the sampler the seat needs (RANDOM, FILTERED,
        LOGPROBS, ADJUSTED, LISTED).
      stops_from: first position at which the seat's stop ids are allowed.
      stop_ids: those ids.
      num_logprobs: alternatives reported; -1 stands for none asked.
      listed_ids: ids reported besides.
      prompts: those that are still to be reported on, by seat.
    """

    def __init__(self, *, max_num_seqs: int, max_blocks: int) -> None:
        """Make a mirror of empty seats."""
        self.block_tables = np.zeros((max_num_seqs, max_blocks), np.int32)
        self.num_blocks = np.zeros(max_num_seqs, np.int32)
        self.sampling = np.zeros((max_num_seqs, len(SamplingColumn)), np.int32)
        self.features = np.zeros(max_num_seqs, np.uint8)
        self.stops_from = np.zeros(max_num_seqs, np.int32)
        self.stop_ids: list[tuple[int, ...]] = [()] * max_num_seqs
        self.num_logprobs: list[int] = [-1] * max_num_seqs
        self.listed_ids: list[tuple[int, ...]] = [()] * max_num_seqs
        self.prompts: dict[int, ReportedPrompt] = {}

    def apply(self, plan: StepPlan) -> list[ScheduledRequest]:
        """Take in what a plan changes; plans come in order, each once.

        Returns:
          The rows that took a seat.
        """
        admitted: list[ScheduledRequest] = []
        # Few rows get blocks in a step, and a row that is admitted always does. The
        # field is read by number because the test runs for every row.
        for row in [row for row in plan.rows if row[5]]:
            if row.options is not None:
                self._seat(row, row.options)
                admitted.append(row)
            else:
                self._append_blocks(row, int(self.num_blocks[row.seat]))
        return admitted

    def _seat(self, row: ScheduledRequest, options: SamplingOptions) -> None:
        self._append_blocks(row, 0)
        self.sampling[row.seat] = sampling_columns(options)
        self.features[row.seat] = features(options)
        self.stops_from[row.seat] = options.stops_from
        self.stop_ids[row.seat] = options.stop_ids
        wanted = options.num_logprobs
        self.num_logprobs[row.seat] = -1 if wanted is None else wanted
        self.listed_ids[row.seat] = options.logprob_token_ids
        self.prompts.pop(row.seat, None)
        # The first token is explained by nothing.
        if options.num_prompt_logprobs is not None and options.num_prompt_tokens > 1:
            self.prompts[row.seat] = ReportedPrompt(
                row.history[: options.num_prompt_tokens], options.num_prompt_logprobs
            )

    def forget_prompts(self, parts: Iterable[PromptPart]) -> None:
        """Note what has been reported; a prompt that is through needs no more."""
        for part in parts:
            prompt = self.prompts[part.seat]
            if part.start + len(part.token_ids) == len(prompt.token_ids):
                del self.prompts[part.seat]

    def _append_blocks(self, row: ScheduledRequest, start: int) -> None:
        end = start + len(row.new_block_ids)
        self.block_tables[row.seat, start:end] = row.new_block_ids
        self.num_blocks[row.seat] = end


def features(options: SamplingOptions) -> int:
    """Say which parts of the sampler a request needs."""
    random = options.temperature > 0
    filtered = random and (options.top_k > 0 or options.top_p < 1)
    return (
        RANDOM * random
        + FILTERED * filtered
        + LOGPROBS * (options.num_logprobs is not None)
        + ADJUSTED * (options.counts_tokens or options.biases_logits)
        + LISTED * bool(options.logprob_token_ids)
    )


def sampling_columns(options: SamplingOptions) -> np.ndarray:
    """Pack a request's options; seat and position are filled in step by step."""
    columns = np.zeros(len(SamplingColumn), np.int32)
    seed = np.array([options.seed & (2**64 - 1)], np.uint64).view(np.int32)
    columns[SamplingColumn.SEED_LOW], columns[SamplingColumn.SEED_HIGH] = seed
    columns[SamplingColumn.TOP_K] = options.top_k
    columns[SamplingColumn.BIASED] = options.biases_logits
    columns[SamplingColumn.TEMPERATURE :] = float_columns(options)
    return columns


def float_columns(options: SamplingOptions) -> np.ndarray:
    """Return the columns from TEMPERATURE on: bits of floats."""
    numbers = (
        options.temperature,
        options.top_p,
        options.min_p,
        options.presence_penalty,
        options.frequency_penalty,
        max(options.repetition_penalty, 1 / LARGEST),
    )
    # A penalty may be too small or too large for a float of 32 bits.
    single = np.array(numbers).clip(-LARGEST, LARGEST).astype(np.float32)
    return single.view(np.int32)
