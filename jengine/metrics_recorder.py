"""Records what an engine does and when; `snapshot` returns it as metrics.

It is told of each step, not of each token: a running request gets a token in every
step, so that all rows share one interval but for those that have just been admitted.
A step costs a few microseconds however many rows it has.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from jengine.core.events import TokenEvent
from jengine.core.plan import StepPlan, StepResult
from jengine.core.request import FinishReason, Request
from jengine.metrics import RequestStateStats
from jengine.metrics_buckets import (
    BETWEEN_TOKENS_S,
    COMPLETIONS,
    FIRST_TOKEN_S,
    REQUEST_S,
    STEP_S,
    STEP_TOKENS,
    Spread,
    token_limits,
)

_MOST_TOKENS = 2_000_000  # of a request, for the limits of buckets


class Totals(NamedTuple):
    """What has been counted.

    Attributes:
      prompt_tokens: of requests that have their first token.
      cached_prompt_tokens: those of them that came from the prefix cache.
      generation_tokens: known output tokens, those of live requests included.
      ended: requests that ended, by reason.
    """

    prompt_tokens: int
    cached_prompt_tokens: int
    generation_tokens: int
    ended: dict[str, int]


class MetricsRecorder:
    """The clocks and counters of one engine.

    Attributes:
      spreads: histograms by the names of their metrics.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Record nothing yet.

        Args:
          clock: seconds from any start, without leaps.
          wall_clock: seconds since 1970.
        """
        self._clock = clock
        self._wall_clock = wall_clock
        self.spreads = _new_spreads()
        self._live: set[Request] = set()
        self._to_settle: list[Request] = []
        self._ended = dict.fromkeys((reason.value for reason in FinishReason), 0)
        self._prompt_tokens = self._cached_tokens = self._generated = 0
        # Requests that got no token since their admission, and their tokens then.
        self._fresh: dict[Request, int] = {}
        self._leaving: list[Request] = []  # preempted with a token in flight
        # When the last two results came.
        self._read_at = self._read_before = 0.0
        self._step_began = self._step_waited = 0.0
        self._has_worked = False
        self._observe_interval = self._spread("inter_token_latency_seconds")
        self._observe_step_tokens = self._spread("iteration_tokens_total")
        self._observe_host = self.spreads["jengine:step_host_seconds"].observe
        self._observe_wait = self.spreads["jengine:step_wait_seconds"].observe
        self._observe_device = self.spreads["jengine:step_device_seconds"].observe

    def added(
        self, requests: Sequence[Request], max_tokens: int | None, num_completions: int
    ) -> None:
        """Take note of the requests of one prompt, which begin to wait."""
        now = self._clock()
        wall = self._wall_clock()
        for request in requests:
            request.times = RequestStateStats(arrival_time=wall, queued_ts=now)
            self._live.add(request)
        self._spread("request_params_n")(num_completions)
        if max_tokens is not None:
            self._spread("request_params_max_tokens")(max_tokens)

    def admitted(self, request: Request) -> None:
        """Take note that a request runs, for the first time or again."""
        times: RequestStateStats | None = request.times
        if times is None:
            return
        self._fresh[request] = len(request.token_ids)
        if not times.scheduled_ts:
            times.scheduled_ts = self._clock()
            self._spread("request_queue_time_seconds")(
                times.scheduled_ts - times.queued_ts
            )
        elif times.first_token_ts and not times.last_token_ts:  # after a recovery
            times.last_token_ts = self._read_at

    def preempted(self, request: Request) -> None:
        """Take note that a request runs no longer."""
        if request.in_flight:
            self._leaving.append(request)
        elif request.times is not None and request not in self._fresh:
            request.times.last_token_ts = self._read_at

    def ended(self, request: Request) -> None:
        """Take note that a request has ended; its figures are taken with the step's."""
        self._to_settle.append(request)

    def dropped(self, requests: Iterable[Request]) -> None:
        """Take note of aborted requests that the scheduler never knew."""
        for request in requests:
            self._live.discard(request)
            self._ended[FinishReason.ABORT.value] += 1

    def begin_step(self) -> None:
        """Start the clock of the host's work."""
        self._step_began = self._clock()
        self._step_waited = 0.0
        self._has_worked = False

    def dispatched(self, plan: StepPlan) -> float:
        """Take note of a step that was started; return when."""
        self._has_worked = True
        self._observe_step_tokens(plan.num_tokens)
        return self._clock()

    def waits(self) -> float:
        """Return when the host began to wait for a result."""
        return self._clock()

    def collected(self, dispatched_at: float, waited_since: float) -> None:
        """Take note that a step's result is there."""
        now = self._clock()
        self._has_worked = True
        self._step_waited += now - waited_since
        self._observe_wait(now - waited_since)
        # Steps run one after another: it cannot have begun before the last one ended.
        self._observe_device(now - max(dispatched_at, self._read_at))
        self._read_before, self._read_at = self._read_at, now

    def took(self, events: Sequence[TokenEvent], result: StepResult) -> None:
        """Take note of the tokens that the collected step brought.

        Args:
          events: what the scheduler made of the result.
          result: of the step.
        """
        count = len(events)
        if result.failed_rows or result.prompt_logprobs:
            count = sum(1 for event in events if event.token_ids)
        if self._fresh:
            count -= self._take_fresh()
        if count:
            self._observe_interval(self._read_at - self._read_before, count)
        for request in self._leaving:
            if request.times is not None:
                request.times.last_token_ts = self._read_at
        self._leaving.clear()

    def end_step(self) -> None:
        """Stop the clock of the host's work, and settle what ended."""
        if self._to_settle:
            self.settle()
        if self._has_worked:
            seconds = self._clock() - self._step_began
            self._observe_host(seconds - self._step_waited)

    def settle(self) -> None:
        """Take the figures of the requests that have ended."""
        ended, self._to_settle = self._to_settle, []
        for request in ended:
            # A recovery may end a request twice, or not at all.
            if request in self._live and request.finish_reason is not None:
                self._live.discard(request)
                self._settle(request, request.finish_reason)

    def totals(self) -> Totals:
        """Return the counters."""
        self.settle()
        generated = self._generated + sum(r.num_output_tokens for r in self._live)
        return Totals(
            self._prompt_tokens, self._cached_tokens, generated, dict(self._ended)
        )

    def _spread(self, name: str) -> Callable[..., None]:
        return self.spreads[f"vllm:{name}"].observe

    def _take_fresh(self) -> int:
        """Take note of first tokens since an admission; return how many came."""
        now = self._read_at
        done = [r for r, known in self._fresh.items() if len(r.token_ids) > known]
        for request in done:
            times: RequestStateStats = request.times
            if times.first_token_ts:  # it had been preempted
                self._observe_interval(now - times.last_token_ts)
                times.last_token_ts = 0.0
            else:
                self._take_first_token(request, times, now)
            del self._fresh[request]
        return len(done)

    def _take_first_token(
        self, request: Request, times: RequestStateStats, now: float
    ) -> None:
        times.first_token_ts = now
        times.first_token_latency = now - times.queued_ts
        self._spread("time_to_first_token_seconds")(times.first_token_latency)
        self._prompt_tokens += request.num_prompt_tokens
        self._cached_tokens += request.num_cached_tokens or 0

    def _settle(self, request: Request, reason: FinishReason) -> None:
        self._ended[reason.value] += 1
        was_fresh = self._fresh.pop(request, None) is not None
        times: RequestStateStats = request.times
        tokens = request.num_output_tokens
        self._generated += tokens
        times.num_generation_tokens = tokens
        if reason is FinishReason.ABORT or not times.first_token_ts:
            return
        if reason is not FinishReason.ERROR:
            times.last_token_ts = self._read_at
        elif not was_fresh:
            times.last_token_ts = self._read_before
        observe = self._spread
        decode = times.last_token_ts - times.first_token_ts
        e2e, run = times.queued_ts, times.scheduled_ts
        observe("e2e_request_latency_seconds")(times.last_token_ts - e2e)
        observe("request_prefill_time_seconds")(times.first_token_ts - run)
        observe("request_decode_time_seconds")(decode)
        observe("request_inference_time_seconds")(times.last_token_ts - run)
        observe("request_prompt_tokens")(request.num_prompt_tokens)
        observe("request_generation_tokens")(tokens)
        computed = request.num_prompt_tokens - (request.num_cached_tokens or 0)
        observe("request_prefill_kv_computed_tokens")(computed)
        if tokens > 1:
            observe("request_time_per_output_token_seconds")(decode / (tokens - 1))


def _new_spreads() -> dict[str, Spread]:
    """Return all histograms, empty."""
    tokens = token_limits(_MOST_TOKENS)
    limits: Iterable[tuple[str, Sequence[Any]]] = (
        ("vllm:time_to_first_token_seconds", FIRST_TOKEN_S),
        ("vllm:inter_token_latency_seconds", BETWEEN_TOKENS_S),
        ("vllm:request_time_per_output_token_seconds", BETWEEN_TOKENS_S),
        ("vllm:e2e_request_latency_seconds", REQUEST_S),
        ("vllm:request_queue_time_seconds", REQUEST_S),
        ("vllm:request_prefill_time_seconds", REQUEST_S),
        ("vllm:request_decode_time_seconds", REQUEST_S),
        ("vllm:request_inference_time_seconds", REQUEST_S),
        ("vllm:request_prompt_tokens", tokens),
        ("vllm:request_generation_tokens", tokens),
        ("vllm:request_params_n", COMPLETIONS),
        ("vllm:request_params_max_tokens", tokens),
        ("vllm:request_prefill_kv_computed_tokens", tokens),
        ("vllm:iteration_tokens_total", STEP_TOKENS),
        ("jengine:step_host_seconds", STEP_S),
        ("jengine:step_wait_seconds", STEP_S),
        ("jengine:step_device_seconds", STEP_S),
    )
    return {name: Spread(bounds) for name, bounds in limits}
