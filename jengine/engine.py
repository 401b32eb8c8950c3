"""The loop: schedule, dispatch, collect, update.

With one step ahead, step N+1 is planned and dispatched before the tokens of step N
are read, so that the host works while the device does. Without, each step is read
at once. Both give the same outputs.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol, no_type_check, runtime_checkable

from jengine.core.plan import StepPlan, StepResult
from jengine.core.request import FinishReason
from jengine.core.scheduler import Scheduler
from jengine.core.stats import SchedulerStats
from jengine.errors import InvalidValueError, refuse_unbuilt
from jengine.input_processor import InputProcessor
from jengine.output_processor import OutputProcessor
from jengine.outputs import RequestOutput
from jengine.prompts import ParsedPrompt, parse_prompt
from jengine.sampling_params import SamplingParams
from jengine.text.tokenizer import Tokenizer


@runtime_checkable
class Runner(Protocol):
    """What the engine asks of whoever runs its plans."""

    def dispatch(self, plan: StepPlan) -> Any:
        """Start a step that has rows."""
        ...

    def collect(self, handle: Any) -> StepResult:
        """Wait for a step's result."""
        ...

    def reset(self) -> None:
        """Forget all seats; what was in flight is lost."""
        ...


class _InFlight(NamedTuple):
    plan: StepPlan
    handle: Any


class LLMEngine:
    """Owns one scheduler and one runner; not for use from several threads."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        inputs: InputProcessor,
        outputs: OutputProcessor,
        *,
        tokenizer: Tokenizer | None = None,
        async_scheduling: bool = True,
    ) -> None:
        """Put an engine together; `jengine.assembly.assemble` does so for a config.

        Args:
          scheduler: decides what runs.
          runner: runs it.
          inputs: turns what is asked into requests.
          outputs: turns tokens into what users see.
          tokenizer: the model's, for `get_tokenizer`.
          async_scheduling: whether a step is dispatched before the last one is read.
        """
        self._scheduler = scheduler
        self._runner = runner
        self._inputs = inputs
        self._outputs = outputs
        self._tokenizer = tokenizer
        self._one_step_ahead = async_scheduling
        self._in_flight: _InFlight | None = None
        self._undelivered: list[RequestOutput] = []
        self._is_changing = False

    @property
    def stats(self) -> SchedulerStats:
        """What has been scheduled, cached and preempted, and what is in use now."""
        return self._scheduler.stats

    @property
    def runner(self) -> Runner:
        """Whoever runs the plans."""
        return self._runner

    @property
    def inputs(self) -> InputProcessor:
        """What checks and tokenises prompts."""
        return self._inputs

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer, None if it was not loaded."""
        return self._tokenizer

    def has_unfinished_requests(self) -> bool:
        """Whether `step` still has something to do or to return."""
        # What broke off may have ended requests that nobody was told of.
        is_broken = self._is_changing
        return bool(is_broken or self._scheduler.num_unfinished or self._undelivered)

    def has_request(self, request_id: str) -> bool:
        """Whether a live request has this id."""
        return self._scheduler.get(request_id) is not None

    def get_num_unfinished_requests(self) -> int:
        """Requests that wait or run."""
        return self._scheduler.num_unfinished

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
        refuse_unbuilt(unbuilt)
        parsed = parse_prompt(prompt)
        if not isinstance(params, SamplingParams):
            raise InvalidValueError("params", params, "a SamplingParams")
        self._inputs.check_priority(priority)
        self._check_id(request_id)
        self._inputs.check_params(params)
        self.queue(request_id, parsed, self._inputs.tokenize(parsed), params, priority)

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
        """
        self._recover_if_broken()
        self._check_id(request_id)
        request = self._inputs.make_request(
            request_id,
            token_ids,
            params,
            priority=priority,
            cache_salt=prompt.cache_salt,
        )
        self._begin_change()
        self._outputs.add(request, prompt.text, params)
        self._scheduler.add(request)
        self._is_changing = False

    def abort_request(self, request_ids: str | Iterable[str]) -> None:
        """End requests and free their blocks; ids that are not live are ignored."""
        self._recover_if_broken()
        ids = [request_ids] if isinstance(request_ids, str) else list(request_ids)
        self._begin_change()
        self._scheduler.finish(ids, FinishReason.ABORT)
        for request_id in ids:
            self._outputs.discard(request_id)
        self._undelivered = [o for o in self._undelivered if o.request_id not in ids]
        self._is_changing = False

    def step(self) -> list[RequestOutput]:
        """Run one step.

        Returns:
          The outputs that it brought; possibly none, since the first tokens are
          read a step later.
        """
        self._recover_if_broken()
        self._begin_change()
        delivered = [*self._undelivered, *self._step()]
        # In one line, for an interrupt must not come in between.
        self._undelivered, self._is_changing = [], False
        return delivered

    def put_back(self, outputs: Iterable[RequestOutput]) -> None:
        """Keep outputs for the next `step`, which belong to another caller."""
        self._undelivered.extend(outputs)

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
        plan = scheduler.schedule()
        ahead = _InFlight(plan, self._runner.dispatch(plan)) if plan.rows else None
        due = ahead
        if self._one_step_ahead:
            due, self._in_flight = self._in_flight, ahead
        if due is None:
            # Requests that neither run nor can run would wait for ever.
            assert plan.rows or not scheduler.num_unfinished
            return []
        result = self._runner.collect(due.handle)
        processed = self._outputs.process(scheduler.update(due.plan, result))
        for request_id, stop in processed.stopped:
            scheduler.finish((request_id,), FinishReason.STOP, stop)
        if not scheduler.num_unfinished:
            self._in_flight = None  # it holds but a token too many of each request
        return processed.outputs

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
        self._in_flight = None
        self._runner.reset()
        self._scheduler.rewind(self._outputs.roll_back())
        late = self._outputs.restore()
        for request_id, stop in late.stopped:
            self._scheduler.finish((request_id,), FinishReason.STOP, stop)
        # In one line, for an interrupt must not come in between.
        self._undelivered, self._is_changing = (
            [*self._undelivered, *late.outputs],
            False,
        )

    def _check_id(self, request_id: object) -> None:
        if not isinstance(request_id, str) or not request_id:
            raise InvalidValueError("request_id", request_id, "a non-empty string")
        if self._scheduler.get(request_id) is not None:
            raise InvalidValueError(
                "request_id", request_id, "an id that no live request has"
            )
