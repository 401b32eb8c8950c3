"""An engine on a given model and device, and a load of requests that all decode."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jengine.bench.gpu_check.target import Target
from jengine.core.plan import StepPlan, StepResult
from jengine.core.scheduler import Scheduler
from jengine.engine import LLMEngine
from jengine.input_processor import EndTokens, InputLimits, InputProcessor
from jengine.output_processor import OutputProcessor
from jengine.runner.bucket import Buckets
from jengine.runner.load import LoadedModel
from jengine.runner.runner import ModelRunner, RunnerLimits
from jengine.sampling_params import RequestOutputKind, SamplingParams


class EngineSize(NamedTuple):
    """The limits of an engine, and the only padded sizes that it has programs for.

    Attributes:
      rows: sizes of steps with one token a row, ascending; the last is the number
        of seats.
      token_budget: tokens of every other step.
      max_model_len: most tokens of a sequence.
      num_blocks: KV blocks.
      block_size: tokens of a block.
    """

    rows: tuple[int, ...]
    token_budget: int
    max_model_len: int
    num_blocks: int
    block_size: int = 16

    @property
    def buckets(self) -> Buckets:
        """One table width and one size of mixed steps, so that few compile."""
        width = -(-self.max_model_len // self.block_size)
        return Buckets(
            rows=self.rows, tokens=(self.token_budget,), table_widths=(width,)
        )


class RunnerProbe:
    """A runner that passes everything on, and notes what it cost.

    Attributes:
      runner: whom everything is passed on to.
      last_plan: the plan dispatched last.
      host_s: seconds inside `dispatch`, of each step.
      wait_s: seconds inside `collect`, of each step.
    """

    def __init__(
        self, runner: Any, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """Wrap a runner.

        Args:
          runner: a `ModelRunner`, or whoever else runs plans.
          clock: seconds.
        """
        self.runner = runner
        self.last_plan: StepPlan | None = None
        self.host_s: list[float] = []
        self.wait_s: list[float] = []
        self._clock = clock
        self._last_handle: Any = None

    def forget(self) -> None:
        """Forget what earlier requests took."""
        self.last_plan = None
        self.host_s.clear()
        self.wait_s.clear()

    def dispatch(self, plan: StepPlan, *, awaits_masks: bool = False) -> Any:
        """Start a step."""
        start = self._clock()
        self._last_handle = self.runner.dispatch(plan, awaits_masks=awaits_masks)
        self.host_s.append(self._clock() - start)
        self.last_plan = plan
        return self._last_handle

    def draw(self, handle: Any, constraints: Sequence[Any]) -> Any:
        """Draw the tokens of a step that waits for masks."""
        return self.runner.draw(handle, constraints)

    def collect(self, handle: Any) -> StepResult:
        """Wait for a step's result."""
        start = self._clock()
        result = self.runner.collect(handle)
        self.wait_s.append(self._clock() - start)
        return result

    def reset(self) -> None:
        """Forget all seats."""
        self.runner.reset()

    def wait_for_device(self) -> None:
        """Return when the device has done all that was dispatched."""
        jax.block_until_ready(getattr(self._last_handle, "out", None))

    @property
    def decoding_rows(self) -> int:
        """Rows of the last plan, if each of them runs one token; else 0."""
        plan = self.last_plan
        if plan is None or plan.num_single_token_rows < len(plan.rows):
            return 0
        return len(plan.rows)


def make_engine(
    model: LoadedModel,
    size: EngineSize,
    target: Target,
    *,
    attention: str | None = None,
    max_logprobs: int = 0,
) -> tuple[LLMEngine, RunnerProbe]:
    """Build an engine without checkpoint and tokenizer; compiles nothing yet.

    Args:
      model: its parameters lie on the target's device.
      size: its limits.
      target: where it runs.
      attention: the attention backend, if not the target's.
      max_logprobs: most alternatives that a request may ask for.
    """
    config = model.config
    limits = RunnerLimits(
        num_blocks=size.num_blocks,
        block_size=size.block_size,
        max_num_seqs=size.rows[-1],
        token_budget=size.token_budget,
        max_model_len=size.max_model_len,
        max_logprobs=max_logprobs,
    )
    runner = ModelRunner(
        model,
        limits,
        device=target.device,
        attention=attention or target.attention,
        buckets=size.buckets,
    )
    scheduler = Scheduler(
        num_blocks=size.num_blocks,
        block_size=size.block_size,
        token_budget=size.token_budget,
        max_num_seqs=size.rows[-1],
        enable_prefix_caching=False,
    )
    inputs = InputLimits(
        vocab_size=config.vocab_size,
        max_model_len=size.max_model_len,
        max_sequence_tokens=scheduler.max_sequence_tokens,
        max_logprobs=max_logprobs,
        seed=0,
    )
    probe = RunnerProbe(runner)
    engine = LLMEngine(
        scheduler,
        probe,
        InputProcessor(inputs, EndTokens(None, frozenset()), None),
        OutputProcessor(None),
    )
    return engine, probe


def generate(
    engine: LLMEngine, prompts: Sequence[Sequence[int]], params: SamplingParams
) -> list[Any]:
    """Run requests to their end and return their outputs in order."""
    for number, prompt in enumerate(prompts):
        request = {"prompt_token_ids": list(prompt)}
        engine.add_request(str(number), request, params)
    found = {}
    while engine.has_unfinished_requests():
        for output in engine.step():
            if output.finished:
                found[output.request_id] = output
    return [found[str(number)] for number in range(len(prompts))]


def random_prompts(
    rng: np.random.Generator, lengths: Sequence[int], vocab_size: int
) -> list[list[int]]:
    """Return prompts of random ids, without the ids that stand for something."""
    return [rng.integers(3, vocab_size, length).tolist() for length in lengths]


def greedy(max_tokens: int, *, logprobs: int | None = None) -> SamplingParams:
    """Return parameters for exactly so many greedy tokens."""
    return SamplingParams(
        temperature=0,
        max_tokens=max_tokens,
        ignore_eos=True,
        logprobs=logprobs,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
