"""The scheduler under any order of events, against the answers of lone requests."""

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from jengine.core.plan import SamplingOptions
from jengine.core.plan_json import plan_from_json, plan_to_json
from jengine.core.request import FinishReason, Request
from jengine.core.scheduler import Scheduler
from jengine.testing.fake_runner import FakeRunner

VOCAB_SIZE = 6
EOS, POISON = 0, 5
STEMS = ((1, 2, 3, 4, 1, 2, 3, 4, 2, 2, 1, 1), (1, 2, 2, 2, 4, 4, 4, 4, 3, 3, 3, 3))


class SchedulerMachine(RuleBasedStateMachine):
    """Up to one step is read later than the next one is planned."""

    check_scheduler: Callable[..., None]
    check_index: Callable[..., None]
    alone: Callable[..., tuple]

    @initialize(
        usable=st.integers(1, 12),
        block_size=st.integers(1, 5),
        seats=st.integers(1, 4),
        spare=st.integers(0, 9),
        threshold=st.sampled_from([0, 1, 3]),
        caching=st.booleans(),
        policy=st.sampled_from(["fcfs", "priority"]),
    )
    def start(self, usable, block_size, seats, spare, threshold, caching, policy):
        sizes = {
            "num_blocks": usable + 1,
            "block_size": block_size,
            "token_budget": seats + spare,
            "max_num_seqs": seats,
        }
        self.scheduler = Scheduler(
            **sizes,
            enable_prefix_caching=caching,
            long_prefill_token_threshold=threshold,
            policy=policy,
        )
        self.runner = FakeRunner(
            **sizes, vocab_size=VOCAB_SIZE, poison=frozenset({POISON})
        )
        self.requests, self.pending = [], []
        self.delivered, self.finished_ids = {}, []

    @rule(
        name=st.integers(0, 9),
        stem=st.sampled_from(STEMS),
        shared=st.integers(0, 12),
        tail=st.lists(st.integers(1, 4), max_size=3),
        output=st.integers(1, 8),
        seed=st.integers(0, 3),
        min_tokens=st.integers(0, 2),
        stop_id=st.sampled_from([None, 1]),
        priority=st.integers(-1, 1),
        salt=st.sampled_from([None, None, "salt"]),
    )
    def add(
        self,
        name,
        stem,
        shared,
        tail,
        output,
        seed,
        min_tokens,
        stop_id,
        priority,
        salt,
    ):
        prompt = [*stem[:shared], *tail] or [1]
        stop_ids = frozenset() if stop_id is None else frozenset({stop_id})
        request = Request(
            f"r{name}",
            prompt,
            max_total_tokens=len(prompt) + output,
            options=SamplingOptions(
                temperature=1.0,
                seed=seed,
                stops_from=len(prompt) + min_tokens,
                stop_ids=(EOS, *stop_ids),
            ),
            eos_token_id=EOS,
            stop_token_ids=stop_ids,
            priority=priority,
            arrival=len(self.requests),
            cache_salt=salt,
        )
        impossible = request.max_total_tokens > self.scheduler.max_sequence_tokens
        if impossible or self.scheduler.get(request.request_id) is not None:
            with pytest.raises(ValueError, match=r"pool holds|in use"):
                self.scheduler.add(request)
            return
        self.scheduler.add(request)
        self.requests.append(request)

    @precondition(lambda self: len(self.pending) < 2)
    @rule()
    def schedule(self):
        plan = self.scheduler.schedule()
        assert hash(plan) == hash(plan_from_json(plan_to_json(plan)))
        assert plan.rows or self.pending or not self.scheduler.num_unfinished
        if plan.rows:  # else its news come again with the next plan
            self.finished_ids += plan.finished_ids
        self.pending.append((plan, self.runner.dispatch(plan)))

    @precondition(lambda self: self.pending)
    @rule()
    def update(self):
        plan, handle = self.pending.pop(0)
        for event in self.scheduler.update(plan, self.runner.collect(handle)):
            self.delivered.setdefault(event.request, []).extend(event.token_ids)

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def abort(self, data):
        victim = data.draw(st.sampled_from(self.requests))
        was_live = self.scheduler.get(victim.request_id)
        ended = self.scheduler.finish(
            [victim.request_id, "nobody", victim.request_id], FinishReason.ABORT
        )
        assert ended == ([] if was_live is None else [was_live])

    @rule()
    def rewind(self):
        self.pending.clear()
        self.runner.reset()
        ids = self.scheduler.request_ids
        self.scheduler.rewind([self.scheduler.get(one) for one in ids])

    @rule()
    def reset_prefix_cache(self):
        idle = self.scheduler.stats.num_blocks_in_use == 0
        assert self.scheduler.reset_prefix_cache() == idle

    @invariant()
    def holds(self):
        if self.requests or self.pending:
            self.check_scheduler(self.scheduler)
            self.check_index(self.scheduler, self.runner, self.requests)

    def teardown(self):
        if not hasattr(self, "requests"):
            return
        total = sum(request.max_total_tokens for request in self.requests)
        steps = 0
        while self.pending:
            self.update()
        while self.scheduler.num_unfinished:
            self.schedule()
            self.update()
            steps += 1
            assert steps <= total * max(1, len(self.requests)) + 2
        self.holds()
        self.finished_ids += self.scheduler.schedule().finished_ids
        assert sorted(self.finished_ids) == sorted(r.request_id for r in self.requests)
        assert self.scheduler.stats.num_blocks_in_use == 0
        for request in self.requests:
            self.check_output(request)

    def check_output(self, request):
        output = request.token_ids[request.num_prompt_tokens :]
        assert self.delivered.get(request, []) == output
        expected = self.alone(
            request, vocab_size=VOCAB_SIZE, poison=frozenset({POISON})
        )
        if request.finish_reason is FinishReason.ABORT:
            assert output == expected[0][: len(output)]
        else:
            assert (output, request.finish_reason, request.stop_reason) == expected


@pytest.mark.usefixtures("without_type_checks")
def test_scheduler_machine(check_scheduler, check_index, alone):
    oracles = {
        "check_scheduler": staticmethod(check_scheduler),
        "check_index": staticmethod(check_index),
        "alone": staticmethod(alone),
    }
    run_state_machine_as_test(
        type("Machine", (SchedulerMachine,), oracles),
        settings=settings(max_examples=100, stateful_step_count=40),
    )
