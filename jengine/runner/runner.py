"""Runs plans on the device: `dispatch` starts a step, `collect` reads its result.

Device arrays are opaque between the two; nothing eager happens to them. The host
reads device values in `collect` only.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from jengine.core.plan import (
    SamplingOptions,
    ScheduledRequest,
    StepPlan,
    StepResult,
)
from jengine.logprobs import LogprobsMode
from jengine.runner import results
from jengine.runner.adjust import SeatTables, bias_row, count_row, new_tables
from jengine.runner.attention import attention_backend
from jengine.runner.bucket import (
    FEWEST_ROWS_ON_GPU,
    Buckets,
    StepBucket,
    make_buckets,
)
from jengine.runner.cache import allocate
from jengine.runner.device import Device, gpu_target
from jengine.runner.handle import StepHandle, Undrawn
from jengine.runner.load import LoadedModel
from jengine.runner.memory import naming_what_does_not_fit
from jengine.runner.mirror import (
    ADJUSTED,
    FILTERED,
    LISTED,
    LOGPROBS,
    RANDOM,
    SeatMirror,
)
from jengine.runner.pack import (
    Constraint,
    PackedStep,
    no_mask,
    pack_listed,
    pack_mask,
    pack_step,
    restrict,
)
from jengine.runner.pallas_attention import HeadShape
from jengine.runner.program_keys import (
    DecodeKey,
    ForwardKey,
    ProgramKey,
    PromptKey,
    SampleKey,
    SeatKey,
    all_keys,
)
from jengine.runner.programs import ProgramStore
from jengine.runner.prompt_logprobs import (
    PromptPart,
    pack_targets,
    prompt_parts,
    unpack_targets,
)
from jengine.runner.results import Wanted
from jengine.runner.sample import EVERYTHING, SampleMode
from jengine.runner.step import StepContext
from models.registry import head_weight


class RunnerLimits(NamedTuple):
    """The sizes that a runner is built for.

    Attributes:
      num_blocks: KV blocks, the null block included.
      block_size: tokens in a block.
      max_num_seqs: seats, and most rows of a step.
      token_budget: most tokens of a step.
      max_model_len: most tokens of a sequence.
      max_logprobs: most alternatives that a row may ask for.
      logprobs_mode: what logprobs are.
    """

    num_blocks: int
    block_size: int
    max_num_seqs: int
    token_budget: int
    max_model_len: int
    max_logprobs: int
    logprobs_mode: LogprobsMode = "raw_logprobs"


_STEP_FITS = naming_what_does_not_fit(
    "a step",
    "Lower max_num_batched_tokens or max_num_seqs, or leave it more memory: a smaller "
    "gpu_memory_utilization or kv_cache_memory_bytes.",
)


class ModelRunner:
    """One model, its KV cache and its compiled programs on one device."""

    def __init__(
        self,
        model: LoadedModel,
        limits: RunnerLimits,
        *,
        device: Device,
        attention: str = "xla",
        buckets: Buckets | None = None,
    ) -> None:
        """Allocate the cache; compiles nothing yet.

        Args:
          model: the model, its parameters on `device`.
          limits: the sizes to build for.
          device: where everything lies.
          attention: name of the attention backend, "xla" or "pallas".
          buckets: padded sizes that hold every step within the limits; None chooses
            them.
        """
        self.limits = limits
        self._device = device
        self._config = model.config
        self._params = model.params
        self._head = head_weight(model.params)
        self._vocab_size = model.config.vocab_size
        self._max_logprobs = min(limits.max_logprobs, self._vocab_size)
        max_blocks = -(-limits.max_model_len // limits.block_size)
        self.buckets: Buckets = buckets or make_buckets(
            max_num_seqs=limits.max_num_seqs,
            token_budget=limits.token_budget,
            max_blocks=max_blocks,
            between=device.platform == "cpu",
            fewest_rows=1 if device.platform == "cpu" else FEWEST_ROWS_ON_GPU,
        )
        self._max_blocks = max_blocks
        self._start()
        context = StepContext(
            graphdef=model.graphdef,
            attend=attention_backend(attention, _head_shape(model), gpu_target(device)),
            block_size=limits.block_size,
            num_slots=limits.num_blocks * limits.block_size,
            max_rows=self.buckets.max_rows,
        )
        self._programs = ProgramStore(context, self._params, self._kv, self._last_token)

    @property
    def num_programs(self) -> int:
        """Programs compiled so far."""
        return self._programs.num_compiled

    def reset(self) -> None:
        """Forget all seats, after a step that may have broken off anywhere.

        An interrupt between a program's call and the assignment of its results
        leaves the donated cache behind; then there is a new one. Whoever calls
        this has given up what the cache held.
        """
        leaves = jax.tree.leaves((self._kv, self._last_token, self._tables))
        # None was left by an interrupt of this very function.
        if self._kv is None or any(leaf.is_deleted() for leaf in leaves):
            self._kv = None
            self._start()
        self._mirror = self._new_mirror()

    def warm_up(
        self,
        on_done: Callable[[ProgramKey], None] = lambda _: None,
        keys: Iterable[ProgramKey] | None = None,
    ) -> None:
        """Compile these programs, or every one that requests can need."""
        self._programs.compile_all(
            self.program_keys() if keys is None else keys, on_done
        )

    def program_keys(self) -> list[ProgramKey]:
        """All programs, those for plain decoding first."""
        return all_keys(self.buckets, self._max_logprobs, self.limits.logprobs_mode)

    @_STEP_FITS
    def dispatch(self, plan: StepPlan, *, awaits_masks: bool = False) -> StepHandle:
        """Start a step; returns before the device has done it.

        Args:
          plan: the next plan of the stream, with at least one row.
          awaits_masks: whether nothing may be drawn before `draw` is called.
        """
        self._set_tables(self._mirror.apply(plan))
        packed = pack_step(plan, self._mirror, self.buckets)
        bucket, rows = packed.bucket, packed.rows.sampling_rows
        lines = rows if bucket.single_token_rows else range(len(rows))
        handle = StepHandle(plan.step, len(plan.rows), rows, lines, None, None)
        parts = prompt_parts(plan, self._mirror.prompts) if self._mirror.prompts else []
        if not (awaits_masks or parts or packed.sampling is None):
            return self._run(handle, packed)
        hidden, states = self._forward(bucket, packed.ints)
        outs = self._report_prompts(parts, states)
        self._mirror.forget_prompts(parts)
        handle = handle._replace(prompt_parts=parts, prompt_outs=outs)
        if packed.sampling is None:
            return handle
        seats = packed.rows.seats[list(rows)]
        undrawn = Undrawn(hidden, packed.sampling, seats)
        if awaits_masks:
            return handle._replace(undrawn=undrawn)
        mask = self._mask(packed.sampling)
        drawing = self._sampling_mode(seats, masked=mask is not None)
        return self._draw(handle, undrawn, mask, *drawing)

    @_STEP_FITS
    def draw(
        self, handle: StepHandle, constraints: Sequence[Sequence[Constraint]]
    ) -> StepHandle:
        """Draw the tokens of a step that waits for masks.

        Args:
          handle: what `dispatch` returned.
          constraints: of each sampling row; none for a row that may draw anything.

        Returns:
          The handle to collect.
        """
        if handle.undrawn is None:
            return handle
        packed = handle.undrawn.packed
        mask = self._mask(packed)
        mask = no_mask(len(packed), self._vocab_size) if mask is None else mask
        for line, own in zip(handle.lines, constraints, strict=True):
            if own:
                mask[line] = restrict(mask[line], own)
        drawing = self._sampling_mode(handle.undrawn.seats, masked=True)
        return self._draw(handle._replace(undrawn=None), handle.undrawn, mask, *drawing)

    @_STEP_FITS
    def collect(self, handle: StepHandle) -> StepResult:
        """Wait for a step and read what it sampled: the only read of the device."""
        out = None if handle.out is None else np.asarray(handle.out)
        found = results.unpack_result(
            out,
            step=handle.step,
            num_rows=handle.num_rows,
            sampling_rows=handle.sampling_rows,
            lines=handle.lines,
            wanted=handle.wanted,
            vocab_size=self._vocab_size,
        )
        if not handle.prompt_parts:
            return found
        outs = [np.asarray(one) for one in handle.prompt_outs]
        reports = unpack_targets(handle.prompt_parts, outs)
        return found._replace(prompt_logprobs=reports)

    def _start(self) -> None:
        self._kv = allocate(
            self._config,
            num_blocks=self.limits.num_blocks,
            block_size=self.limits.block_size,
            dtype=self._head.dtype,
            device=self._device,
        )
        seats = self.limits.max_num_seqs
        self._last_token = jnp.zeros(seats, jnp.int32, device=self._device)
        self._tables: SeatTables | None = None  # until a request needs them
        self._mirror = self._new_mirror()

    def _set_tables(self, admitted: Sequence[ScheduledRequest]) -> None:
        """Set the rows of seats taken by requests with penalties or biases."""
        for row in admitted:
            if not self._mirror.features[row.seat] & ADJUSTED:
                continue
            options = cast("SamplingOptions", row.options)
            self._tables = self._programs.get(SeatKey())(
                self._take_tables(),
                np.int32(row.seat),
                count_row(row.history, options.num_prompt_tokens, self._vocab_size),
                bias_row(options, self._vocab_size),
            )

    def _new_mirror(self) -> SeatMirror:
        return SeatMirror(
            max_num_seqs=self.limits.max_num_seqs, max_blocks=self._max_blocks
        )

    def _sampling_mode(
        self, seats: np.ndarray, *, masked: bool
    ) -> tuple[SampleMode, list[Wanted] | None]:
        """Choose the smallest program that does what the rows ask for."""
        features = int(np.bitwise_or.reduce(self._mirror.features[seats]))
        mode = SampleMode(
            random=bool(features & RANDOM),
            filtered=bool(features & FILTERED),
            masked=masked,
        )
        if features & ADJUSTED:
            mode = EVERYTHING
        if not features & LOGPROBS:
            return mode, None
        mirror = self._mirror
        wanted = [Wanted(mirror.num_logprobs[s], mirror.listed_ids[s]) for s in seats]
        if features & LISTED:
            mode = EVERYTHING._replace(listed=True)
        mode = mode._replace(
            num_logprobs=self._max_logprobs, values=self.limits.logprobs_mode
        )
        return mode, wanted

    def _mask(self, packed: np.ndarray) -> np.ndarray | None:
        return pack_mask(packed, self._mirror, vocab_size=self._vocab_size)

    def _run(self, handle: StepHandle, step: PackedStep) -> StepHandle:
        """Start a step that draws at once, in one program where there is one."""
        packed = cast("np.ndarray", step.sampling)
        seats, mask = step.rows.seats[list(step.rows.sampling_rows)], self._mask(packed)
        mode, wanted = self._sampling_mode(seats, masked=mask is not None)
        plain = mode in (SampleMode(), SampleMode(random=True))
        if not (step.bucket.single_token_rows and plain):
            hidden, _ = self._forward(step.bucket, step.ints)
            undrawn = Undrawn(hidden, packed, seats)
            return self._draw(handle, undrawn, mask, mode, wanted)
        program = self._programs.get(DecodeKey(step.bucket, mode))
        self._kv, self._last_token, out = program(
            self._params, self._kv, self._last_token, step.ints, packed
        )
        out.copy_to_host_async()
        return handle._replace(out=out)

    def _draw(
        self,
        handle: StepHandle,
        undrawn: Undrawn,
        mask: np.ndarray | None,
        mode: SampleMode,
        wanted: list[Wanted] | None,
    ) -> StepHandle:
        """Start the sampling program of a step whose forward program has started."""
        hidden, packed, _ = undrawn
        program = self._programs.get(SampleKey(len(packed), mode))
        args: list[Any] = [self._head, self._last_token, hidden, packed]
        if mode.masked:
            args.append(
                no_mask(len(packed), self._vocab_size) if mask is None else mask
            )
        if mode.adjusted:
            args.append(self._take_tables())
        if mode.listed:
            listed = [one.listed_ids for one in wanted or ()]
            args.append(pack_listed(listed, handle.lines, num_rows=len(packed)))
        if mode.adjusted:
            self._last_token, out, self._tables = program(*args)
        else:
            self._last_token, out, _ = program(*args)
        out.copy_to_host_async()
        return handle._replace(out=out, wanted=wanted)

    def _take_tables(self) -> SeatTables:
        """Return the seats' tables, made on their first use."""
        if self._tables is None:
            self._tables = new_tables(
                self.limits.max_num_seqs, self._vocab_size, self._device
            )
        return self._tables

    def _forward(
        self, bucket: StepBucket, ints: np.ndarray
    ) -> tuple[jax.Array, jax.Array]:
        program = self._programs.get(ForwardKey(bucket))
        self._kv, hidden, states = program(
            self._params, self._kv, self._last_token, ints
        )
        return hidden, states

    def _report_prompts(
        self, parts: Sequence[PromptPart], states: jax.Array
    ) -> list[jax.Array]:
        """Start reports on tokens of prompts."""
        if not parts:
            return []
        mode = self.limits.logprobs_mode
        key = PromptKey(states.shape[0], self._max_logprobs, mode)
        program = self._programs.get(key)
        outs = [program(self._head, states, targets) for targets in pack_targets(parts)]
        for out in outs:
            out.copy_to_host_async()
        return outs


def _head_shape(model: LoadedModel) -> HeadShape:
    config = model.config
    dtype = head_weight(model.params).dtype
    return HeadShape(config.num_heads, config.num_kv_heads, config.head_dim, dtype.name)
