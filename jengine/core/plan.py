"""What the scheduler and the runner say to each other, as immutable values.

Named tuples rather than dataclasses: 256 rows a step are built on the critical
path, and a frozen dataclass costs five times as much to make (3.5 us against
0.7 us a row, measured on Python 3.11).
"""

from typing import NamedTuple

from jengine.appearance import as_html, as_text, print_pretty


class SamplingOptions(NamedTuple):
    """How one request's tokens are drawn; fixed from admission to finish.

    Attributes:
      temperature: 0 means greedy.
      top_k: number of best tokens kept; 0 keeps all.
      top_p: probability mass kept; 1 keeps all.
      min_p: least probability kept, as a share of the best one's; 0 keeps all.
      seed: 64-bit seed; a draw depends on it and on the token's position only.
      num_logprobs: alternatives reported for each token; None reports nothing.
      num_prompt_logprobs: the same for the prompt's tokens.
      logprob_token_ids: ids reported for each token besides.
      stops_from: first position in the sequence that may hold one of `stop_ids`.
      stop_ids: ids that are masked at positions before `stops_from`.
      num_prompt_tokens: leading tokens of the sequence that are the prompt.
      presence_penalty: subtracted from the logits of ids in the output.
      frequency_penalty: subtracted for each time that an id is in the output.
      repetition_penalty: divides the positive logits of ids in prompt or output, and
        multiplies the negative ones; 1 changes nothing.
      logit_bias: ids and what is added to their logits.
      allowed_token_ids: the only ids that may be drawn; None for all.
      banned_token_ids: ids that may never be drawn.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    num_logprobs: int | None = None
    stops_from: int = 0
    stop_ids: tuple[int, ...] = ()
    num_prompt_tokens: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    allowed_token_ids: tuple[int, ...] | None = None
    banned_token_ids: tuple[int, ...] = ()
    num_prompt_logprobs: int | None = None
    logprob_token_ids: tuple[int, ...] = ()

    @property
    def needs_history(self) -> bool:
        """Whether the runner must know all tokens so far, cached ones too."""
        return self.counts_tokens or self.num_prompt_logprobs is not None

    @property
    def counts_tokens(self) -> bool:
        """Whether a draw depends on which tokens came before."""
        return bool(
            self.presence_penalty
            or self.frequency_penalty
            or self.repetition_penalty != 1
        )

    @property
    def biases_logits(self) -> bool:
        """Whether fixed numbers are added to logits, minus infinity among them."""
        return bool(
            self.logit_bias
            or self.banned_token_ids
            or self.allowed_token_ids is not None
        )


class ScheduledRequest(NamedTuple):
    """One request's share of a step: a row.

    Attributes:
      request_id: whose row it is.
      seat: index of the request's state on the device, held while it runs.
      num_computed_tokens: tokens whose keys and values are cached before this
        step; also the position of the first token to run.
      token_ids: the tokens to run that the host knows.
      carries: whether the first token to run is the one that the previous step
        sampled, which the host may not have seen yet; `token_ids` follow it.
      new_block_ids: blocks added to the block table in this step; on admission
        the whole table.
      samples: whether the last token to run yields a new token.
      options: the sampling options on admission, None afterwards.
      history: on admission, all known tokens, if the options need them; those found
        in the prefix cache, or of later chunks, are in no `token_ids`.
    """

    request_id: str
    seat: int
    num_computed_tokens: int
    token_ids: tuple[int, ...]
    carries: bool
    new_block_ids: tuple[int, ...]
    samples: bool
    options: SamplingOptions | None
    history: tuple[int, ...] = ()

    @property
    def num_tokens(self) -> int:
        """Number of tokens that this row runs."""
        return len(self.token_ids) + self.carries


class StepPlan(NamedTuple):
    """Everything that one step runs.

    Attributes:
      step: number of the step, from 0.
      rows: the requests that run; those that run one token come first.
      num_single_token_rows: how many leading rows run exactly one token.
      num_tokens: tokens that run in all, before padding.
      finished_ids: requests that finished since the previous plan.
      preempted_ids: requests that lost their blocks since the previous plan.
    """

    step: int
    rows: tuple[ScheduledRequest, ...]
    num_single_token_rows: int
    num_tokens: int
    finished_ids: tuple[str, ...]
    preempted_ids: tuple[str, ...]

    __str__, _repr_html_, _repr_pretty_ = as_text, as_html, print_pretty


class TokenLogprobs(NamedTuple):
    """Log-probabilities reported for one token, sampled or of a prompt, best first.

    Attributes:
      token_ids: the best ids, then the token itself if it is not among them, then
        those that were listed.
      logprobs: natural logarithms, in the same order; logits, if the engine reports
        those.
      ranks: one more than the number of ids with a larger value; None for an id that
        was listed only.
      sampled_logprob: the value of the token itself.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    ranks: tuple[int | None, ...]
    sampled_logprob: float


class PromptLogprobs(NamedTuple):
    """Log-probabilities of some tokens of a prompt, one after another.

    Attributes:
      start: position of the first of them.
      entries: one for each.
    """

    start: int
    entries: tuple[TokenLogprobs, ...]


class StepResult(NamedTuple):
    """What a step produced, in the order of the plan's rows.

    Attributes:
      step: number of the step that produced it.
      sampled: for each row the ids that it sampled, empty where it did not.
      logprobs: for each row what it asked for; None where no row asked.
      failed_rows: rows whose logits held no number to choose by (NaN).
      prompt_logprobs: by row, for the rows that ran tokens of a prompt about which
        this was asked.
    """

    step: int
    sampled: tuple[tuple[int, ...], ...]
    logprobs: tuple[TokenLogprobs | None, ...] | None = None
    failed_rows: tuple[int, ...] = ()
    prompt_logprobs: tuple[tuple[int, PromptLogprobs], ...] = ()
