"""Compiled programs by bucket and mode, lowered from shapes and kept.

Calling a compiled program cannot compile anything: a wrong shape raises. So what
may be compiled late is what `ProgramStore` compiles on a first use, and it says
so.
"""

import concurrent.futures
import functools
import logging
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import numpy as np

from jengine.runner.adjust import SeatTables, set_seat, table_shapes
from jengine.runner.bucket import StepBucket
from jengine.runner.layout import SamplingColumn, forward_layout
from jengine.runner.sample import SampleMode
from jengine.runner.step import StepContext, decode_step, forward, sample
from models.registry import head_weight

logger = logging.getLogger(__name__)

_COMPILE_THREADS = 2


class ForwardKey(NamedTuple):
    """The forward program of one bucket."""

    bucket: StepBucket


class SampleKey(NamedTuple):
    """The sampling program of a number of rows and a mode."""

    rows: int
    mode: SampleMode


class SeatKey(NamedTuple):
    """The program that sets a seat's biases and counts."""


class DecodeKey(NamedTuple):
    """The program that does both, for a bucket with one token a row."""

    bucket: StepBucket
    mode: SampleMode


ProgramKey = ForwardKey | SampleKey | DecodeKey | SeatKey


class ProgramStore:
    """Compiles each program at most once."""

    def __init__(
        self, context: StepContext, params: Any, kv: Any, last_token: Any
    ) -> None:
        """Make a store without programs.

        Args:
          context: what all programs share.
          params: the model's parameters; only their shapes and places are kept.
          kv: the cache, likewise.
          last_token: the seats' last tokens, likewise.
        """
        self._context = context
        self._params, self._kv, self._last_token = jax.tree.map(
            _shape, (params, kv, last_token)
        )
        self._compiled: dict[ProgramKey, Callable[..., Any]] = {}

    @property
    def num_compiled(self) -> int:
        """Programs that exist."""
        return len(self._compiled)

    def get(self, key: ProgramKey) -> Callable[..., Any]:
        """Return a program, compiling it if this is its first use."""
        program = self._compiled.get(key)
        if program is None:
            logger.info("compiling %s", key)
            program = self._compiled[key] = self._lower(key).compile()
        return program

    def compile_all(
        self, keys: Iterable[ProgramKey], on_done: Callable[[ProgramKey], None]
    ) -> None:
        """Compile programs ahead of their use.

        Lowering stays on this thread, XLA's part runs on a few.
        """
        todo = [key for key in keys if key not in self._compiled]
        with concurrent.futures.ThreadPoolExecutor(_COMPILE_THREADS) as pool:
            waiting = {pool.submit(self._lower(key).compile): key for key in todo}
            for done in concurrent.futures.as_completed(waiting):
                key = waiting[done]
                self._compiled[key] = done.result()
                on_done(key)

    def _lower(self, key: ProgramKey) -> Any:
        match key:
            case ForwardKey(bucket):
                function = functools.partial(forward, self._context, bucket)
                args = (self._params, self._kv, self._last_token, _ints(bucket))
                return jax.jit(function, donate_argnums=1).lower(*args)
            case DecodeKey(bucket, mode):
                function = functools.partial(decode_step, self._context, bucket, mode)
                args = (self._params, self._kv, self._last_token, _ints(bucket))
                packed = _packed(bucket.rows)
                return jax.jit(function, donate_argnums=(1, 2)).lower(*args, packed)
            case SampleKey(rows, mode):
                function = functools.partial(sample, mode)
                args = self._sample_shapes(rows, mode)
                donated = (1, 5) if mode.adjusted else 1
                return jax.jit(function, donate_argnums=donated).lower(*args)
            case SeatKey():
                tables = self._tables()
                vocab_size = tables.counts.shape[1]
                counts = _host_ints(vocab_size)
                bias = jax.ShapeDtypeStruct((vocab_size,), np.float32)
                args = (tables, _host_ints(), counts, bias)
                return jax.jit(set_seat, donate_argnums=0).lower(*args)

    def _tables(self) -> SeatTables:
        """Shapes of the seats' tables, placed as their last tokens are."""
        (num_seats,) = self._last_token.shape
        vocab_size = head_weight(self._params).shape[0]
        return table_shapes(num_seats, vocab_size, self._last_token.sharding)

    def _sample_shapes(self, rows: int, mode: SampleMode) -> tuple[Any, ...]:
        head = head_weight(self._params)
        vocab_size, width = head.shape
        hidden = jax.ShapeDtypeStruct(
            (self._context.max_rows, width), head.dtype, sharding=head.sharding
        )
        args = (head, self._last_token, hidden, _packed(rows))
        if mode.masked:
            args = (*args, _host_ints(rows, -(-vocab_size // 32)))
        return (*args, self._tables()) if mode.adjusted else args


def _shape(array: Any) -> jax.ShapeDtypeStruct:
    # With its place: a program lowered for another placement would not accept it.
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=array.sharding)


def _ints(bucket: StepBucket) -> jax.ShapeDtypeStruct:
    return _host_ints(forward_layout(bucket).size)


def _packed(rows: int) -> jax.ShapeDtypeStruct:
    return _host_ints(rows, len(SamplingColumn))


def _host_ints(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, np.int32)
