"""What a user gets back: `RequestOutput`, `CompletionOutput` and `Logprob`.

The fields are vLLM's. The objects are frozen; the lists in them are plain lists,
because vLLM scripts compare them with lists, and they belong to the receiver: the
engine keeps no reference to them. Standard library only.
"""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Logprob:
    """The log-probability of one token at one position.

    Attributes:
      logprob: natural logarithm of the probability.
      rank: one more than the number of tokens that are more probable.
      decoded_token: the token's own text.
    """

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One completion of a prompt.

    Attributes:
      index: number of this completion among those of its prompt.
      text: the text produced.
      token_ids: the ids produced; an ending token is among them.
      cumulative_logprob: sum of the logprobs of `token_ids`; None when none were
        asked for.
      logprobs: for each of `token_ids` the best tokens, best first, then the token
        itself if it is not among them; None when none were asked for.
      finish_reason: "stop", "length", "abort", or "error" where the logits were not
        numbers; None while it goes on.
      stop_reason: the stop string or stop token id that ended it; None for the end of
        sequence and for every other reason.
    """

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: list[dict[int, Logprob]] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None

    def finished(self) -> bool:
        """Return whether this completion has ended."""
        return self.finish_reason is not None


@dataclasses.dataclass(frozen=True, slots=True)
class RequestOutput:
    """What one request has produced so far.

    Attributes:
      request_id: the id under which the request was added.
      prompt: the prompt as text; None when only its ids were given.
      prompt_token_ids: the prompt as ids.
      prompt_logprobs: one entry for each prompt token, the first None; None when not
        asked for.
      outputs: the completions, in the order of their index.
      finished: whether all completions have ended.
      metrics: times of the request's life, where the engine keeps them.
      num_cached_tokens: prompt tokens that came from the prefix cache.
      kv_transfer_params: as in vLLM; always None.
      lora_request: as in vLLM; always None.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    metrics: object | None = None
    num_cached_tokens: int | None = None
    kv_transfer_params: None = None
    lora_request: None = None


def merge_outputs(
    earlier: RequestOutput, later: RequestOutput, *, are_deltas: bool
) -> RequestOutput:
    """Make one output of two that follow each other, for who has read neither.

    Args:
      earlier: comes first; stays as it is.
      later: comes next, from the same request; stays as it is.
      are_deltas: whether each holds only what is new; if not, a later completion
        takes the place of an earlier one.
    """
    merged = {one.index: one for one in earlier.outputs}
    for one in later.outputs:
        known = merged.get(one.index) if are_deltas else None
        merged[one.index] = one if known is None else _join(known, one)
    prompt_logprobs = later.prompt_logprobs
    if prompt_logprobs is None:  # deltas bring them once
        prompt_logprobs = earlier.prompt_logprobs
    return dataclasses.replace(
        later,
        outputs=[merged[index] for index in sorted(merged)],
        prompt_logprobs=prompt_logprobs,
    )


def _join(earlier: CompletionOutput, later: CompletionOutput) -> CompletionOutput:
    logprobs = later.logprobs
    if logprobs is not None and earlier.logprobs is not None:
        logprobs = earlier.logprobs + logprobs
    return dataclasses.replace(
        later,
        text=earlier.text + later.text,
        token_ids=earlier.token_ids + later.token_ids,
        logprobs=logprobs,
    )
