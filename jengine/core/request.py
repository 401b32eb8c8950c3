"""The host state of one request; every legal change of it is a method."""

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple

from jengine.core.block_hash import BlockHash
from jengine.core.plan import SamplingOptions


class RequestStatus(enum.Enum):
    """Where a request is in its life."""

    WAITING = "waiting"
    WAITING_FOR_GRAMMAR = "waiting for grammar"  # and unknown to the scheduler
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"


class FinishReason(enum.StrEnum):
    """Why a request finished, as users see it."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"
    REPETITION = "repetition"


class Repetition(NamedTuple):
    """When an output counts as going round in circles.

    Attributes:
      least_size: least tokens of what repeats.
      most_size: most tokens of it.
      times: how often it must stand, one after another.
    """

    least_size: int
    most_size: int
    times: int


class Request:
    """One generation asked for.

    Tokens are *known* (prompt and output so far, on the host), *expected* (known,
    plus those that steps in flight will sample) and *computed* (a step that has
    been planned writes their keys and values). There are no phases: a step runs
    some of the expected tokens that are not computed.

    Attributes:
      token_ids: known tokens, prompt first.
      num_expected_tokens: known tokens and those in flight.
      num_computed_tokens: leading tokens that need not run again.
      num_cached_tokens: tokens found in the prefix cache at first admission, or
        None before it.
      num_slots: tokens that the request's blocks have room for.
      checked_from: known tokens from which on any token may end the request, end ids
        aside.
      ending_ids: ids that end the output, the main EOS among them.
      in_flight: numbers of the steps whose sampled token is not known yet.
      first_step: number of the step that admitted it last, None before that; what an
        earlier step says is about another life of it.
      seat: index of its state on the device while it runs, else None.
      times: what an observer keeps about it; nothing here looks at it.
    """

    __slots__ = (
        "arrival",
        "block_hashes",
        "cache_salt",
        "checked_from",
        "ending_ids",
        "eos_token_id",
        "finish_reason",
        "first_step",
        "in_flight",
        "max_total_tokens",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_expected_tokens",
        "num_prompt_tokens",
        "num_slots",
        "options",
        "priority",
        "reads_cache",
        "repetition",
        "request_id",
        "seat",
        "status",
        "stop_reason",
        "times",
        "token_ids",
    )

    def __init__(  # noqa: PLR0913 - what defines a request
        self,
        request_id: str,
        prompt_token_ids: Sequence[int],
        *,
        max_total_tokens: int,
        options: SamplingOptions | None = None,
        eos_token_id: int | None = None,
        stop_token_ids: frozenset[int] = frozenset(),
        priority: int = 0,
        arrival: int = 0,
        cache_salt: str | None = None,
        reads_cache: bool = True,
        repetition: Repetition | None = None,
    ) -> None:
        """Describe a request that waits.

        Args:
          request_id: unique among live requests.
          prompt_token_ids: at least one id.
          max_total_tokens: prompt and output together end here at the latest.
          options: how tokens are drawn; greedy if None.
          eos_token_id: id that ends the output without a stop reason.
          stop_token_ids: ids that end the output with themselves as the reason.
          priority: smaller is served sooner under the priority policy.
          arrival: order of arrival, which breaks ties.
          cache_salt: requests share cached blocks only if their salts are equal.
          reads_cache: whether blocks cached by others may stand for its tokens.
          repetition: ends the output once it repeats itself so.

        Raises:
          ValueError: an empty prompt, or no room for a single output token.
        """
        if not prompt_token_ids:
            raise ValueError(f"request {request_id!r} has an empty prompt")
        if max_total_tokens <= len(prompt_token_ids):
            raise ValueError(
                f"request {request_id!r} has {len(prompt_token_ids)} prompt tokens "
                f"and may hold {max_total_tokens} in all: no room for an output"
            )
        self.request_id = request_id
        self.token_ids = list(prompt_token_ids)
        self.num_prompt_tokens = len(prompt_token_ids)
        self.max_total_tokens = max_total_tokens
        self.options = options or SamplingOptions()
        self.eos_token_id = eos_token_id
        self.ending_ids = stop_token_ids
        if eos_token_id is not None:
            self.ending_ids |= {eos_token_id}
        self.priority = priority
        self.arrival = arrival
        self.cache_salt = cache_salt
        self.reads_cache = reads_cache
        self.repetition = repetition
        self.checked_from = max_total_tokens if repetition is None else 0
        self.block_hashes: list[BlockHash] = []
        self.status = RequestStatus.WAITING
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | str | None = None
        self.num_cached_tokens: int | None = None
        self.times: Any = None
        self._reset_progress()

    def _reset_progress(self) -> None:
        self.num_expected_tokens = len(self.token_ids)
        self.num_computed_tokens = 0
        self.num_slots = 0
        self.first_step: int | None = None
        self.in_flight: list[int] = []
        self.seat: int | None = None

    @property
    def num_output_tokens(self) -> int:
        """Output tokens known so far."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will come."""
        return self.status is RequestStatus.FINISHED

    def is_awaiting(self, step: int) -> bool:
        """Whether the next token to become known is the one of this step."""
        return bool(self.in_flight) and self.in_flight[0] == step

    def admit(self, seat: int, num_cached_tokens: int) -> None:
        """Start or resume running, after the first `num_cached_tokens` tokens."""
        assert self.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED)
        assert not self.in_flight
        self.status = RequestStatus.RUNNING
        self.seat = seat
        self.num_computed_tokens = num_cached_tokens
        if self.num_cached_tokens is None:
            self.num_cached_tokens = num_cached_tokens

    def preempt(self) -> None:
        """Lose the seat and all computed tokens; a token in flight is kept."""
        assert self.status is RequestStatus.RUNNING
        self.status = RequestStatus.PREEMPTED
        self.seat = None
        self.num_computed_tokens = 0

    def rewind(self) -> None:
        """Forget everything that steps did and that the host has not seen."""
        was_admitted = self.num_cached_tokens is not None
        self.status = RequestStatus.PREEMPTED if was_admitted else RequestStatus.WAITING
        self.finish_reason = self.stop_reason = None
        self.block_hashes.clear()
        self._reset_progress()

    def conclude(self, reason: FinishReason) -> None:
        """Correct the reason of an end that ids and lengths alone gave.

        A text may be complete with the last token that a limit allows, or an end token
        may have cut it short.
        """
        assert self.is_finished
        if reason is FinishReason.ERROR or self.finish_reason is FinishReason.LENGTH:
            self.finish_reason = reason

    def finish(self, reason: FinishReason, stop_reason: int | str | None) -> None:
        """End, once."""
        assert not self.is_finished
        self.status = RequestStatus.FINISHED
        self.finish_reason = reason
        self.stop_reason = stop_reason
        self.seat = None
