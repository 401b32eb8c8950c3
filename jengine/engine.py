"""The loop: schedule, dispatch, collect, update.

`StepPipeline` says which step is read when; here its tokens become outputs.
"""

import logging
from collections.abc import Container, Iterable, Sequence
from typing import no_type_check

from jengine.call_arguments import refuse_unbuilt
from jengine.core.cache_manager import CacheManager
from jengine.core.events import TokenEvent
from jengine.core.request import FinishReason, Request, RequestStatus
from jengine.core.scheduler import Scheduler
from jengine.core.stats import SchedulerStats
from jengine.errors import InvalidValueError
from jengine.input_processor import InputProcessor
from jengine.metrics import Metric
from jengine.metrics_recorder import MetricsRecorder
from jengine.metrics_snapshot import snapshot
from jengine.output_processor import OutputProcessor, ProcessedStep
from jengine.outputs import RequestOutput
from jengine.prompts import ParsedPrompt, parse_prompt
from jengine.runner_protocol import Runner
from jengine.sampling_params import SamplingParams
from jengine.step_pipeline import InFlight, StepPipeline
from jengine.structured_output.constraint import BadWords, Constraint
from jengine.structured_output.manager import Compiled, GrammarManager
from jengine.structured_output.tracker import ConstraintTracker
from jengine.structured_output.waiting import WaitingForGrammar, WaitingGroup
from jengine.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)


class LLMEngine:
    """Owns one scheduler and one runner; not for use from several threads."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        inputs: InputProcessor,
        outputs: OutputProcessor,
        *,
        grammars: GrammarManager | None = None,
        metrics: MetricsRecorder | None = None,
        async_scheduling: bool = True,
    ) -> None:
        """Put an engine together; `jengine.assembly.assemble` does so for a config.

        Args:
          scheduler: decides what runs.
          runner: runs it.
          inputs: turns what is asked into requests.
          outputs: turns tokens into what users see.
          grammars: compiles structured outputs; None refuses them.
          metrics: takes note of what happens; None makes one.
          async_scheduling: whether a step is dispatched before the last one is read.
        """
        self._scheduler = scheduler
        self._inputs = inputs
        self._outputs = outputs
        self._constraints = ConstraintTracker()
        self._waiting = WaitingForGrammar(grammars)
        self._undelivered: list[RequestOutput] = []
        self._is_changing = False
        self._metrics = metrics or MetricsRecorder()
        scheduler.observe(self._metrics)
        self._steps = StepPipeline(
            runner, self._constraints, self._metrics, one_step_ahead=async_scheduling
        )

    @property
    def stats(self) -> SchedulerStats:
        """What has been scheduled, cached and preempted, and what is in use now."""
        return self._scheduler.stats

    def get_metrics(self, model_name: str = "") -> list[Metric]:
        """Return counters, gauges and histograms under vLLM's names."""
        return snapshot(
            self._metrics,
            self.stats,
            labels={"model_name": model_name, "engine": "0"},
            num_waiting_for_grammar=self._waiting.num_requests,
            num_programs=self._steps.num_programs,
        )

    @property
    def runner(self) -> Runner:
        """Whoever runs the plans; may be replaced by one that passes them on."""
        return self._steps.runner

    @runner.setter
    def runner(self, runner: Runner) -> None:
        self._steps.runner = runner

    @property
    def cache(self) -> CacheManager:
        """The KV pool and its block tables, to be looked at."""
        return self._scheduler.cache

    @property
    def inputs(self) -> InputProcessor:
        """What checks and tokenises prompts."""
        return self._inputs

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer, None if it was not loaded."""
        return self._inputs.tokenizer

    def has_unfinished_requests(self) -> bool:
        """Whether `step` still has something to do or to return."""
        # What broke off may have ended requests that nobody was told of.
        is_broken = self._is_changing
        waits = self._scheduler.num_unfinished or self._waiting.num_requests
        return bool(is_broken or waits or self._undelivered)

    @property
    def is_changing(self) -> bool:
        """Whether a change is under way, or broke off."""
        return self._is_changing

    def has_request(self, request_id: str) -> bool:
        """Whether a live request has this id."""
        return self._outputs.has(request_id)

    def get_num_unfinished_requests(self) -> int:
        """Requests that wait or run."""
        return self._scheduler.num_unfinished + self._waiting.num_requests

    @no_type_check  # it checks its arguments, and says more than a type checker would
    def add_request(
        self,
        request_id: str,
        prompt: object,
        params: SamplingParams,
        *,
        priority: int = 0,
        **unbuilt: None,
    ) -> None:
        """Queue a request.

        Args:
          request_id: unique among live requests.
          prompt: text, token ids, or a dict with either.
          params: how to sample.
          priority: smaller is served sooner under the priority policy.
          **unbuilt: vLLM's other arguments; only None.

        Raises:
          PromptError: the prompt cannot be run.
          SamplingParamsError: the parameters do not suit the model.
          InvalidValueError: the id or the priority cannot be used.
        """
        self._recover_if_broken()
        refuse_unbuilt(self.add_request, unbuilt)
        parsed = parse_prompt(prompt)
        if not isinstance(params, SamplingParams):
            raise InvalidValueError("params", params, "a SamplingParams")
        self._inputs.check_priority(priority)
        self._check_id(request_id)
        self._inputs.check_params(params)
        ids = self._inputs.tokenize(parsed, params)
        self.queue(request_id, parsed, ids, params, priority)

    def queue(
        self,
        request_id: str,
        prompt: ParsedPrompt,
        token_ids: Sequence[int],
        params: SamplingParams,
        priority: int = 0,
    ) -> None:
        """Queue a request whose prompt and parameters have been checked.

        Raises:
          InvalidValueError: a live request has this id; it is not touched.
          SamplingParamsError: the grammar cannot be compiled.
        """
        self._recover_if_broken()
        self._check_id(request_id)
        grammar = self._waiting.compile(params)
        ids = [request_id]
        if params.n > 1:
            ids = [f"{index}_{request_id}" for index in range(params.n)]
            for one in ids:
                self._check_id(one)
        salt = prompt.cache_salt
        requests = [
            self._inputs.make_request(
                one, token_ids, params, index=index, priority=priority, cache_salt=salt
            )
            for index, one in enumerate(ids)
        ]
        self._begin_change()
        self._metrics.added(requests, params.max_tokens, params.n)
        self._outputs.add(request_id, requests, prompt.text, params)
        if grammar is None or grammar.done():
            self._start(requests, params, grammar and grammar.result())
        else:
            self._waiting.hold(WaitingGroup(request_id, requests, params, grammar))
        self._is_changing = False

    def abort_request(self, request_ids: str | Iterable[str]) -> list[RequestOutput]:
        """End requests and free their blocks; ids that are not live are ignored.

        Returns:
          The last outputs of those that were live.
        """
        self._recover_if_broken()
        ids = [request_ids] if isinstance(request_ids, str) else list(request_ids)
        self._begin_change()
        for request_id in ids:
            members = self._outputs.request_ids(request_id)
            self._scheduler.finish(members, FinishReason.ABORT)
            self._constraints.discard(members)
        last = [self._outputs.last_output(one) for one in dict.fromkeys(ids)]
        for request_id in ids:
            self._metrics.dropped(self._waiting.discard((request_id,)))
            self._outputs.discard(request_id)
        self._undelivered = [o for o in self._undelivered if o.request_id not in ids]
        self._is_changing = False
        return [output for output in last if output is not None]

    def step(self) -> list[RequestOutput]:
        """Run one step.

        Returns:
          The outputs that it brought, after those that nobody has taken; possibly
          none, since a step's tokens are read in one that follows.
        """
        self.advance()
        delivered, self._undelivered = self._undelivered, []
        return delivered

    def advance(self) -> None:
        """Run one step and keep its outputs, for `take` or the next `step`."""
        self._recover_if_broken()
        self._begin_change()
        self._metrics.begin_step()
        kept = [*self._undelivered, *self._step()]
        self._metrics.end_step()
        # In one line, for an interrupt must not come in between.
        self._undelivered, self._is_changing = kept, False

    def take(self, request_ids: Container[str]) -> list[RequestOutput]:
        """Hand out what is kept for some requests; the rest stays for its owners."""
        kept = self._undelivered
        self._undelivered = [o for o in kept if o.request_id not in request_ids]
        return [output for output in kept if output.request_id in request_ids]

    def reset_prefix_cache(self) -> bool:
        """Forget all cached blocks; refused (False) while any request runs."""
        self._recover_if_broken()
        self._begin_change()
        done = self._scheduler.reset_prefix_cache()
        self._is_changing = False
        return done

    def check_invariants(self) -> None:
        """Assert what must hold between two steps."""
        self._recover_if_broken()
        self._scheduler.check_invariants()

    def _step(self) -> list[RequestOutput]:
        scheduler = self._scheduler
        refused = self._take_compiled()
        due = self._steps.next_due(scheduler.schedule)
        # Requests that neither run nor can run would wait for ever.
        assert due or not self._steps.is_empty or not scheduler.num_unfinished
        outputs = [] if due is None else self._take_result(due)
        if not scheduler.num_unfinished:
            self._steps.forget_in_flight()  # but a token too many of each request
        self._steps.draw()
        return [*refused, *outputs]

    def _take_result(self, step: InFlight) -> list[RequestOutput]:
        """Learn what a step drew, and end what it completes."""
        result = self._steps.collect(step)
        events = self._scheduler.update(step.plan, result)
        self._metrics.took(events, result)
        for request_id, reason in self._constraints.advance(events):
            self._scheduler.finish((request_id,), reason)
        processed = self._outputs.process(events)
        self._end_stopped(processed)
        return processed.outputs

    def _end_stopped(self, processed: ProcessedStep) -> None:
        for request_id, stop in processed.stopped:
            self._scheduler.finish((request_id,), FinishReason.STOP, stop)
            self._constraints.discard((request_id,))

    def _start(
        self, requests: list[Request], params: SamplingParams, grammar: Compiled | None
    ) -> None:
        """Hand requests to the scheduler, each with constraints of its own."""
        sequences = self._inputs.split_bad_words(params).sequences
        for request in requests:
            own: list[Constraint] = [BadWords(sequences)] if sequences else []
            if grammar is not None:
                own.append(grammar.constraint(params.stop_token_ids))
            self._constraints.add(request, own)
            self._scheduler.add(request)

    def _take_compiled(self) -> list[RequestOutput]:
        """Start requests whose grammar is ready.

        Returns:
          The last outputs of those whose grammar cannot be compiled.
        """
        outputs: list[RequestOutput] = []
        is_idle = not self._scheduler.num_unfinished
        for group in self._waiting.take_ready(is_idle=is_idle):
            error = group.grammar.exception()
            if error is None:
                self._start(group.requests, group.params, group.grammar.result())
            else:
                logger.error("request %s: %s", group.group_id, error)
                outputs += self._refuse(group.requests)
        return outputs

    def _refuse(self, requests: list[Request]) -> list[RequestOutput]:
        for request in requests:
            request.finish(FinishReason.ERROR, None)
            self._metrics.ended(request)
        events = [TokenEvent(request, (), None) for request in requests]
        return self._outputs.process(events).outputs

    def _begin_change(self) -> None:
        """Note that what follows may break off; what came before was delivered."""
        self._outputs.commit()
        self._is_changing = True

    def _recover_if_broken(self) -> None:
        """Make an engine whose last change broke off usable again.

        An interrupt can strike between any two instructions, so nothing that a step,
        an addition or an abort touched is trusted: live requests keep the tokens that
        are known and start over on a new pool.
        """
        if not self._is_changing:
            return
        self._steps.clear()
        self.runner.reset()
        waiting = RequestStatus.WAITING_FOR_GRAMMAR
        live = self._outputs.roll_back()
        self._scheduler.rewind([one for one in live if one.status is not waiting])
        self._constraints.restart()
        late = self._outputs.restore()
        self._end_stopped(late)
        kept = [*self._undelivered, *late.outputs]
        # In one line, for an interrupt must not come in between.
        self._undelivered, self._is_changing = kept, False

    def _check_id(self, request_id: object) -> None:
        if not isinstance(request_id, str) or not request_id:
            raise InvalidValueError("request_id", request_id, "a non-empty string")
        if self.has_request(request_id) or self._scheduler.get(request_id) is not None:
            raise InvalidValueError(
                "request_id", request_id, "an id that no live request has"
            )
