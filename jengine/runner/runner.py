"""Runs plans on the device: `dispatch` starts a step, `collect` reads its result.

Device arrays are opaque between the two; nothing eager happens to them. The host
reads device values in `collect` only.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jengine.core.plan import StepPlan, StepResult
from jengine.runner import results
from jengine.runner.attention import attention_backend
from jengine.runner.bucket import Buckets, StepBucket, make_buckets
from jengine.runner.cache import allocate
from jengine.runner.device import Device, gpu_target
from jengine.runner.load import LoadedModel
from jengine.runner.mirror import FILTERED, LOGPROBS, RANDOM, SeatMirror
from jengine.runner.pack import pack_mask, pack_step
from jengine.runner.pallas_attention import HeadShape
from jengine.runner.program_keys import (
    DecodeKey,
    ForwardKey,
    ProgramKey,
    SampleKey,
    all_keys,
)
from jengine.runner.programs import ProgramStore
from jengine.runner.sample import SampleMode
from jengine.runner.step import StepContext
from models.registry import head_weight


class StepHandle(NamedTuple):
    """A step in flight.

    Attributes:
      step: number of the step.
      num_rows: rows of its plan.
      sampling_rows: rows that sample, ascending.
      lines: where each of them lies in `out`.
      num_logprobs: for each sampling row the alternatives it asked for, -1 for
        none; None when no row asked.
      out: what the sampler returned, on the device; None when no row samples.
    """

    step: int
    num_rows: int
    sampling_rows: Sequence[int]
    lines: Sequence[int]
    num_logprobs: list[int] | None
    out: jax.Array | None


class RunnerLimits(NamedTuple):
    """The sizes that a runner is built for.

    Attributes:
      num_blocks: KV blocks, the null block included.
      block_size: tokens in a block.
      max_num_seqs: seats, and most rows of a step.
      token_budget: most tokens of a step.
      max_model_len: most tokens of a sequence.
      max_logprobs: most alternatives that a row may ask for.
    """

    num_blocks: int
    block_size: int
    max_num_seqs: int
    token_budget: int
    max_model_len: int
    max_logprobs: int


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
        leaves = jax.tree.leaves((self._kv, self._last_token))
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
        return all_keys(self.buckets, self._max_logprobs)

    def dispatch(self, plan: StepPlan) -> StepHandle:
        """Start a step; returns before the device has done it.

        Args:
          plan: the next plan of the stream, with at least one row.
        """
        self._mirror.apply(plan)
        packed = pack_step(plan, self._mirror, self.buckets)
        bucket, rows = packed.bucket, packed.rows.sampling_rows
        if packed.sampling is None:
            self._forward(bucket, packed.ints)
            return StepHandle(plan.step, len(plan.rows), [], [], None, None)
        seats = packed.rows.seats[list(rows)]
        mode, mask, wanted = self._sampling_mode(seats, packed.sampling)
        out = self._run(bucket, mode, packed.ints, packed.sampling, mask)
        out.copy_to_host_async()
        lines = rows if bucket.single_token_rows else range(len(rows))
        return StepHandle(plan.step, len(plan.rows), rows, lines, wanted, out)

    def collect(self, handle: StepHandle) -> StepResult:
        """Wait for a step and read what it sampled: the only read of the device."""
        out = None if handle.out is None else np.asarray(handle.out)
        return results.unpack_result(
            out,
            step=handle.step,
            num_rows=handle.num_rows,
            sampling_rows=handle.sampling_rows,
            lines=handle.lines,
            num_logprobs=handle.num_logprobs,
            vocab_size=self._vocab_size,
        )

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
        self._mirror = self._new_mirror()

    def _new_mirror(self) -> SeatMirror:
        return SeatMirror(
            max_num_seqs=self.limits.max_num_seqs, max_blocks=self._max_blocks
        )

    def _sampling_mode(
        self, seats: np.ndarray, packed: np.ndarray
    ) -> tuple[SampleMode, np.ndarray | None, list[int] | None]:
        """Choose the smallest program that does what the rows ask for."""
        features = int(np.bitwise_or.reduce(self._mirror.features[seats]))
        mask = pack_mask(packed, self._mirror, vocab_size=self._vocab_size)
        asked = bool(features & LOGPROBS)
        mode = SampleMode(
            random=bool(features & RANDOM),
            filtered=bool(features & FILTERED),
            masked=mask is not None,
            num_logprobs=self._max_logprobs if asked else None,
        )
        wanted = [self._mirror.num_logprobs[s] for s in seats] if asked else None
        return mode, mask, wanted

    def _run(
        self,
        bucket: StepBucket,
        mode: SampleMode,
        ints: np.ndarray,
        packed: np.ndarray,
        mask: np.ndarray | None,
    ) -> jax.Array:
        plain = not (mode.filtered or mode.masked or mode.num_logprobs is not None)
        if bucket.single_token_rows and plain:
            program = self._programs.get(DecodeKey(bucket, mode))
            self._kv, self._last_token, out = program(
                self._params, self._kv, self._last_token, ints, packed
            )
            return out
        hidden = self._forward(bucket, ints)
        program = self._programs.get(SampleKey(len(packed), mode))
        args: list[Any] = [self._head, self._last_token, hidden, packed]
        if mask is not None:
            args.append(mask)
        self._last_token, out = program(*args)
        return out

    def _forward(self, bucket: StepBucket, ints: np.ndarray) -> jax.Array:
        program = self._programs.get(ForwardKey(bucket))
        self._kv, hidden = program(self._params, self._kv, self._last_token, ints)
        return hidden


def _head_shape(model: LoadedModel) -> HeadShape:
    config = model.config
    dtype = head_weight(model.params).dtype
    return HeadShape(config.num_heads, config.num_kv_heads, config.head_dim, dtype.name)
