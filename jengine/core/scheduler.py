"""Decides what each step runs, and learns what came of it.

A request has expected tokens and computed tokens; a step runs some of the
difference, under one token budget, running requests first. There are no phases.
A plan may be made while the previous step still runs: its sampled tokens are
then expected but not known, and rows carry them over on the device.
"""

import dataclasses
import itertools
import sys
from collections.abc import Iterable
from typing import Any

from jengine.core.cache_manager import CacheManager
from jengine.core.events import RequestObserver, TokenEvent
from jengine.core.plan import ScheduledRequest, StepPlan, StepResult
from jengine.core.request import FinishReason, Request
from jengine.core.request_table import RequestTable
from jengine.core.rows import schedule_row
from jengine.core.stats import SchedulerCounters, SchedulerStats

# A named tuple's own constructor costs three times as much.
_new_tuple: Any = tuple.__new__  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


class Scheduler:
    """Policy and token budget; commands happen whole or not at all."""

    def __init__(  # noqa: PLR0913 - its limits, so that tests need no config
        self,
        *,
        num_blocks: int,
        block_size: int,
        token_budget: int,
        max_num_seqs: int,
        enable_prefix_caching: bool = True,
        enable_chunked_prefill: bool = True,
        long_prefill_token_threshold: int = 0,
        policy: str = "fcfs",
    ) -> None:
        """Make a scheduler without requests.

        Args:
          num_blocks: KV blocks, the null block included.
          block_size: tokens in a block.
          token_budget: most tokens that one step runs.
          max_num_seqs: most requests that run at once.
          enable_prefix_caching: whether full blocks are shared by content.
          enable_chunked_prefill: whether a waiting request may start with only
            a part of its tokens.
          long_prefill_token_threshold: most tokens of one request in a step; 0
            for no such limit.
          policy: "fcfs" or "priority".

        Raises:
          ValueError: a limit below 1, a budget below `max_num_seqs`, or another
            policy.
        """
        if not 1 <= max_num_seqs <= token_budget:
            raise ValueError(
                f"max_num_seqs is {max_num_seqs} and the token budget {token_budget}; "
                "1 <= max_num_seqs <= budget is needed, so that each running "
                "request can run one token in each step"
            )
        if block_size < 1 or long_prefill_token_threshold < 0:
            raise ValueError(
                f"block_size is {block_size} and long_prefill_token_threshold "
                f"{long_prefill_token_threshold}; use at least 1 and 0"
            )
        if policy not in ("fcfs", "priority"):
            raise ValueError(f"policy is {policy!r}; use 'fcfs' or 'priority'")
        self._token_budget = token_budget
        self._chunked = enable_chunked_prefill
        self._most_tokens_a_row = long_prefill_token_threshold or sys.maxsize
        cache = CacheManager(
            num_blocks=num_blocks,
            block_size=block_size,
            enable_prefix_caching=enable_prefix_caching,
        )
        self._table = RequestTable(
            cache, max_num_seqs=max_num_seqs, by_priority=policy == "priority"
        )
        self._next_step = 0
        self._counters = SchedulerCounters()

    @property
    def num_unfinished(self) -> int:
        """Requests that wait or run."""
        return len(self._table.requests)

    @property
    def request_ids(self) -> tuple[str, ...]:
        """Ids of the requests that wait or run."""
        return tuple(self._table.requests)

    @property
    def max_sequence_tokens(self) -> int:
        """Tokens of the longest request that the pool can ever hold.

        The last token of a sequence is sampled but never run, so it needs no slot.
        """
        cache = self._table.cache
        return cache.pool.num_usable * cache.block_size + 1

    @property
    def cache(self) -> CacheManager:
        """The KV pool and its block tables, to be looked at."""
        return self._table.cache

    @property
    def stats(self) -> SchedulerStats:
        """Counters and gauges of this moment."""
        pool = self._table.cache.pool
        return SchedulerStats(
            **dataclasses.asdict(self._counters),
            num_running=len(self._table.running),
            num_waiting=len(self._table.waiting),
            num_blocks_in_use=pool.num_in_use,
            num_blocks_cached=pool.num_cached,
            num_blocks=pool.num_usable,
        )

    def observe(self, observer: RequestObserver) -> None:
        """Tell someone of admissions, preemptions and ends from now on."""
        self._table.observer = observer

    def get(self, request_id: str) -> Request | None:
        """Return a live request."""
        return self._table.requests.get(request_id)

    def add(self, request: Request) -> None:
        """Let a request wait for admission.

        Raises:
          ValueError: a live request has this id, or this one could never fit.
        """
        if request.request_id in self._table.requests:
            raise ValueError(f"request id {request.request_id!r} is in use")
        if request.max_total_tokens > self.max_sequence_tokens:
            raise ValueError(
                f"request {request.request_id!r} may grow to "
                f"{request.max_total_tokens} tokens and the KV pool holds "
                f"{self.max_sequence_tokens}; ask for fewer tokens or use more blocks"
            )
        at_once = min(request.max_total_tokens - 1, self._most_tokens_a_row)
        if not self._chunked and at_once > self._token_budget:
            raise ValueError(
                f"request {request.request_id!r} may have to run {at_once} tokens at "
                f"once, without chunked prefill, and the token budget is "
                f"{self._token_budget}; raise it or ask for fewer tokens"
            )
        self._table.add(request)

    def finish(
        self,
        request_ids: Iterable[str],
        reason: FinishReason,
        stop_reason: str | None = None,
    ) -> list[Request]:
        """End live requests from outside, whatever they are doing.

        Ids that are not live are ignored: a request may have ended by itself.

        Returns:
          The requests that this call ended.
        """
        found = [self._table.requests.get(i) for i in dict.fromkeys(request_ids)]
        ended = [request for request in found if request is not None]
        for request in ended:
            self._table.end(request, reason, stop_reason)
        self._table.sweep()
        return ended

    def schedule(self) -> StepPlan:
        """Plan the next step and count its tokens as computed.

        Returns:
          The plan; without rows when nothing can run before a step in flight is
          known, or when there is nothing to run.
        """
        rows: list[ScheduledRequest] = []
        long_rows: list[ScheduledRequest] = []
        table = self._table
        num_preempted = len(table.preempted_ids)
        budget = self._continue_running(rows, long_rows, self._token_budget)
        if len(table.preempted_ids) == num_preempted:  # or victims come straight back
            budget = self._admit_waiting(rows, long_rows, budget)
        plan = StepPlan(
            step=self._next_step,
            rows=(*rows, *long_rows),
            num_single_token_rows=len(rows),
            num_tokens=self._token_budget - budget,
            finished_ids=tuple(table.finished_ids),
            preempted_ids=tuple(table.preempted_ids),
        )
        self._next_step += 1
        if rows or long_rows:
            # A plan without rows is not run: its news belong to the next one.
            table.finished_ids.clear()
            table.preempted_ids.clear()
            self._counters.num_steps += 1
            self._counters.num_scheduled_tokens += plan.num_tokens
        return plan

    def update(self, plan: StepPlan, result: StepResult) -> list[TokenEvent]:
        """Learn what a step sampled; results for requests gone are ignored.

        Returns:
          One event for each request that got a token, in row order, then one for
          each that failed, then one for each of which only the prompt is news.
        """
        events: list[TokenEvent] = []
        table, requests, step = self._table, self._table.requests, plan.step
        ended, add = False, events.append
        assert len(plan.rows) == len(result.sampled)
        logprobs = result.logprobs or itertools.repeat(None)
        for row, ids, row_logprobs in zip(
            plan.rows, result.sampled, logprobs, strict=False
        ):
            request = requests.get(row[0])
            if not ids or request is None:
                continue
            in_flight = request.in_flight
            # The id may have been aborted, and even used again, since the plan.
            if not in_flight or in_flight[0] != step:
                continue
            del in_flight[0]
            known = request.token_ids
            known += ids
            add(_new_tuple(TokenEvent, (request, ids, row_logprobs, None)))
            if ids[-1] in request.ending_ids or len(known) >= request.checked_from:
                ended |= table.end_if_stopped(request)
        if result.failed_rows:
            events += self._fail_rows(plan, result.failed_rows)
            ended = True
        if result.prompt_logprobs:
            events = self._add_prompt_logprobs(events, plan, result)
        if ended:
            table.sweep()
        return events

    def rewind(self, requests: Iterable[Request]) -> None:
        """Start these requests over, with their known tokens, on a new pool.

        For use after a step that broke off anywhere: whatever it did to the pool,
        the seats, the prefix index or the requests is forgotten.

        Args:
          requests: all whose end the user has not been told.
        """
        self._table.rewind(requests)

    def reset_prefix_cache(self) -> bool:
        """Forget all cached blocks; refused (False) while any block is in use."""
        return self._table.cache.pool.forget_all()

    def check_invariants(self) -> None:
        """Assert what must hold between any two calls."""
        self._table.check_invariants()

    def _continue_running(
        self,
        rows: list[ScheduledRequest],
        long_rows: list[ScheduledRequest],
        budget: int,
    ) -> int:
        """Give each running request its tokens, preempting from the end.

        `running` is kept in the policy's order, so the victim is always its last
        request, which has not been scheduled yet. One token of the budget is kept
        for every request further down: a long prompt slows the others, but never
        stops them.

        Returns:
          What is left of the budget.
        """
        running, most, step = (
            self._table.running,
            self._most_tokens_a_row,
            self._next_step,
        )
        index = 0
        while index < len(running):
            request = running[index]
            index += 1
            count = request.num_expected_tokens - request.num_computed_tokens
            # The last token of a sequence is never run.
            if not count or request.num_expected_tokens >= request.max_total_tokens:
                continue
            if count > 1:
                count = min(count, most, budget - (len(running) - index))
            new_block_ids: tuple[int, ...] | None = ()
            if request.num_computed_tokens + count > request.num_slots:
                new_block_ids = self._extend_or_preempt(request, count)
                if new_block_ids is None:
                    break
            row = schedule_row(request, count, new_block_ids, step, None)
            (rows if count == 1 else long_rows).append(row)
            budget -= count
        return budget

    def _extend_or_preempt(
        self, request: Request, count: int
    ) -> tuple[int, ...] | None:
        """Find room for a running request, taking it from the last ones.

        Returns:
          The added blocks, or None when the request itself was the last one.
        """
        needed = request.num_computed_tokens + count
        added = self._table.cache.extend(request, needed)
        while added is None:
            self._counters.num_preemptions += 1
            if self._table.preempt_last() is request:
                return None
            added = self._table.cache.extend(request, needed)
        return added

    def _admit_waiting(
        self,
        rows: list[ScheduledRequest],
        long_rows: list[ScheduledRequest],
        budget: int,
    ) -> int:
        """Admit waiting requests in order, until one does not fit.

        A request is admitted only if all its known tokens would fit, not just
        the first chunk; else half-computed requests could block each other.

        Returns:
          What is left of the budget.
        """
        table, cache = self._table, self._table.cache
        while budget and table.has_free_seat and len(table.waiting):
            if not cache.pool.num_free:
                break
            request = table.waiting.peek()
            if request.in_flight:
                break
            prefix = cache.find_prefix(request)
            num_cached = len(prefix) * cache.block_size
            count = min(len(request.token_ids) - num_cached, self._most_tokens_a_row)
            if count > budget and not self._chunked:
                break
            if not cache.fits(len(request.token_ids), prefix):
                break
            count = min(count, budget)
            block_ids = cache.admit(request, prefix, num_cached + count)
            self._count_lookup(request, num_cached)
            table.start(request, num_cached)
            request.first_step = self._next_step
            row = schedule_row(
                request, count, block_ids, self._next_step, request.options
            )
            (rows if count == 1 else long_rows).append(row)
            budget -= count
        return budget

    def _count_lookup(self, request: Request, num_cached: int) -> None:
        """Count a prefix lookup at first admission, not when resumed."""
        if request.num_cached_tokens is None:
            self._counters.prefix_cache_queries += request.num_prompt_tokens
            self._counters.prefix_cache_hits += num_cached

    def _add_prompt_logprobs(
        self, events: list[TokenEvent], plan: StepPlan, result: StepResult
    ) -> list[TokenEvent]:
        """Join what is known of prompts now to the events of the same requests."""
        by_id = {event.request.request_id: event for event in events}
        for index, found in result.prompt_logprobs:
            request_id = plan.rows[index].request_id
            event = by_id.get(request_id)
            request = self.get(request_id) if event is None else event.request
            if request is None:
                continue
            # The row may be of an earlier life of the request, or of its name.
            if request.first_step is None or plan.step < request.first_step:
                continue
            event = event or TokenEvent(request, (), None)
            by_id[request_id] = event._replace(prompt_logprobs=found)
        return list(by_id.values())

    def _fail_rows(
        self, plan: StepPlan, failed_rows: Iterable[int]
    ) -> list[TokenEvent]:
        """End the requests whose logits were not numbers."""
        events: list[TokenEvent] = []
        for index in failed_rows:
            request = self._table.requests.get(plan.rows[index].request_id)
            if request is not None and request.is_awaiting(plan.step):
                self._table.end(request, FinishReason.ERROR, None)
                events.append(TokenEvent(request, (), None))
        return events
