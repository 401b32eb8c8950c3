"""What a user gets back: `RequestOutput`, `CompletionOutput` and `Logprob`.

The fields are vLLM's. The objects are frozen; the lists in them are plain lists,
because vLLM scripts compare them with lists, and they belong to the receiver: the
engine keeps no reference to them. Standard library only.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from jengine.appearance import as_html, as_text, print_pretty


@dataclasses.dataclass(frozen=True, slots=True)
class Logprob:
    """The log-probability of one token at one position.

    Attributes:
      logprob: natural logarithm of the probability; what else the engine's
        `logprobs_mode` says.
      rank: one more than the number of tokens that are more probable; None for a
        token that is reported only because it was listed.
      decoded_token: the token's own text.
    """

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


class FlatLogprobs(Sequence["dict[int, Logprob] | None"]):
    """Log-probabilities of many positions in a few long lists.

    Reads like the list of dicts that it stands for, and costs the garbage collector
    six objects instead of thousands.

    >>> flat = FlatLogprobs([None, {5: Logprob(-0.5, 1, "a"), 7: Logprob(-2.0, 4)}])
    >>> flat.token_ids, flat[1][7].rank, len(flat[1:])
    ([5, 7], 4, 1)

    Attributes:
      start_indices: for each position, where its entries start in the other lists.
      end_indices: where they end.
      token_ids: of every entry.
      logprobs: of every entry.
      ranks: of every entry.
      decoded_tokens: of every entry.
    """

    __slots__ = (
        "decoded_tokens",
        "end_indices",
        "logprobs",
        "ranks",
        "start_indices",
        "token_ids",
    )

    def __init__(self, positions: Iterable[dict[int, Logprob] | None] = ()) -> None:
        """Flatten a list with one dict, or None, for each position."""
        self.start_indices: list[int] = []
        self.end_indices: list[int] = []
        self.token_ids: list[int] = []
        self.logprobs: list[float] = []
        self.ranks: list[int | None] = []
        self.decoded_tokens: list[str | None] = []
        for position in positions:
            self._append(position or {})

    def __len__(self) -> int:
        """Return the number of positions."""
        return len(self.start_indices)

    @overload
    def __getitem__(self, index: int) -> dict[int, Logprob] | None: ...
    @overload
    def __getitem__(self, index: slice) -> "FlatLogprobs": ...
    def __getitem__(
        self, index: int | slice
    ) -> "dict[int, Logprob] | FlatLogprobs | None":
        """Return a position's entries, None where there are none; or a part."""
        if isinstance(index, slice):
            return FlatLogprobs(self[i] for i in range(*index.indices(len(self))))
        entries = range(self.start_indices[index], self.end_indices[index])
        found = {
            self.token_ids[i]: Logprob(
                self.logprobs[i], self.ranks[i], self.decoded_tokens[i]
            )
            for i in entries
        }
        return found or None

    def __eq__(self, other: object) -> bool:
        """Say whether both, or a list, hold the same."""
        if not isinstance(other, FlatLogprobs | list):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __iter__(self) -> Iterator[dict[int, Logprob] | None]:
        """Go through the positions."""
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        """Return the call that makes this object."""
        return f"FlatLogprobs({list(self)!r})"

    def _append(self, position: dict[int, Logprob]) -> None:
        self.start_indices.append(len(self.token_ids))
        self.token_ids += position
        for entry in position.values():
            self.logprobs.append(entry.logprob)
            self.ranks.append(entry.rank)
            self.decoded_tokens.append(entry.decoded_token)
        self.end_indices.append(len(self.token_ids))


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
        itself if it is not among them, then those listed by the request; None when
        none were asked for.
      finish_reason: "stop", "length", "abort", "repetition" where the request asked
        to detect it, or "error" where the logits were not numbers; None while it goes
        on.
      stop_reason: the stop string or stop token id that ended it,
        "repetition_detected" for a repetition; None for the end of sequence and for
        every other reason.
    """

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: list[dict[int, Logprob]] | FlatLogprobs | None = None
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
        asked for, and in deltas after the first.
      outputs: the completions, in the order of their index.
      finished: whether all completions have ended.
      metrics: times of the request's life, a `jengine.metrics.RequestStateStats`, which
        is complete once the request has ended.
      num_cached_tokens: prompt tokens that came from the prefix cache.
      kv_transfer_params: as in vLLM; always None.
      lora_request: as in vLLM; always None.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    prompt_logprobs: list[dict[int, Logprob] | None] | FlatLogprobs | None = None
    metrics: object | None = None
    num_cached_tokens: int | None = None
    kv_transfer_params: None = None
    lora_request: None = None

    __str__, _repr_html_, _repr_pretty_ = as_text, as_html, print_pretty


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
        logprobs = _concatenate(earlier.logprobs, logprobs)
    return dataclasses.replace(
        later,
        text=earlier.text + later.text,
        token_ids=earlier.token_ids + later.token_ids,
        logprobs=logprobs,
    )


def _concatenate(
    first: list[dict[int, Logprob]] | FlatLogprobs,
    second: list[dict[int, Logprob]] | FlatLogprobs,
) -> list[dict[int, Logprob]] | FlatLogprobs:
    if isinstance(first, FlatLogprobs):
        return FlatLogprobs([*first, *second])
    return [*first, *(one or {} for one in second)]
