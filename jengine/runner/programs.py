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

from jengine.logprobs import MOST_LISTED_IDS
from jengine.runner.adjust import SeatTables, set_seat, table_shapes
from jengine.runner.bucket import StepBucket
from jengine.runner.layout import SamplingColumn, forward_layout
from jengine.runner.program_keys import (
    DecodeKey,
    ForwardKey,
    ProgramKey,
    PromptKey,
    SampleKey,
    SeatKey,
    program_name,
)
from jengine.runner.prompt_logprobs import TARGETS, prompt_logprobs
from jengine.runner.sample import SampleMode
from jengine.runner.sharding import TensorParallel
from jengine.runner.step import StepContext, decode_step, forward, sample
from models.registry import head_weight

logger = logging.getLogger(__name__)

_COMPILE_THREADS = 2
# XLA takes four fifths of a GPU for all there is. A cache that fills more of it makes
# the pass that trades memory for time run on every program: it frees next to nothing
# (a decode step has no activations to speak of), and adds launches.
_COMPILER_OPTIONS = {"xla_disable_hlo_passes": "rematerialization"}


class ProgramShapes(NamedTuple):
    """What the programs of an engine take: shapes with their places.

    Attributes:
      context: what all programs share.
      params: the model's parameters, nested.
      kv: the cache.
      last_token: the seats' last tokens.
      parallel: how one program is split over several devices; None runs on one.
    """

    context: StepContext
    params: Any
    kv: Any
    last_token: Any
    parallel: TensorParallel | None = None


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
        arrays = jax.tree.map(_shape, (params, kv, last_token))
        self._shapes = ProgramShapes(context, *arrays)
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
            program = self._compiled[key] = lower(self._shapes, key).compile()
        return program

    def compile_all(
        self, keys: Iterable[ProgramKey], on_done: Callable[[ProgramKey], None]
    ) -> None:
        """Compile programs ahead of their use.

        Lowering stays on this thread, XLA's part runs on a few.
        """
        todo = [key for key in keys if key not in self._compiled]
        with concurrent.futures.ThreadPoolExecutor(_COMPILE_THREADS) as pool:
            waiting = {
                pool.submit(lower(self._shapes, key).compile): key for key in todo
            }
            for done in concurrent.futures.as_completed(waiting):
                key = waiting[done]
                self._compiled[key] = done.result()
                on_done(key)


def lower(shapes: ProgramShapes, key: ProgramKey) -> jax.stages.Lowered:
    """Trace and lower a program for the devices that its arguments lie on.

    The cache is donated, and so are the seats' last tokens where they change. No
    device is needed: the arguments may lie on those of a described topology.
    """
    call = _call(shapes, key)
    function: Any = functools.partial(call.function)
    if shapes.parallel is not None:
        function = shapes.parallel.split(function, call.roles, call.out_roles)
    function.__name__ = program_name(key)
    jitted = jax.jit(
        function, donate_argnums=call.donated, compiler_options=_COMPILER_OPTIONS
    )
    return jitted.lower(*call.args)


class _Call(NamedTuple):
    """A function to lower.

    Attributes:
      function: what is static is bound already.
      args: shapes of its arguments.
      roles: what each argument is, see `sharding.TensorParallel.split`.
      out_roles: what each result is.
      donated: arguments that are consumed.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    roles: tuple[str, ...]
    out_roles: tuple[str, ...] | str
    donated: tuple[int, ...]


def _call(shapes: ProgramShapes, key: ProgramKey) -> _Call:
    context, state = shapes.context, (shapes.params, shapes.kv, shapes.last_token)
    roles = ("params", "kv", "same", "same")
    match key:
        case ForwardKey(bucket):
            function = functools.partial(forward, context, bucket)
            out_roles = ("kv", "same", "same")
            return _Call(function, (*state, _ints(bucket)), roles, out_roles, (1,))
        case DecodeKey(bucket, mode):
            function = functools.partial(decode_step, context, bucket, mode)
            args = (*state, _ints(bucket), _packed(bucket.rows))
            out_roles = ("kv", "same", "same")
            return _Call(function, args, (*roles, "same"), out_roles, (1, 2))
        case SampleKey(rows, mode):
            function = functools.partial(sample, mode, split_over=context.split_over)
            args = _sample_shapes(shapes, rows, mode)
            roles = ("head", *["same"] * (len(args) - 1))
            donated = (1, 5) if mode.adjusted else (1,)
            return _Call(function, args, roles, ("same",) * 3, donated)
        case SeatKey():
            tables = _table_shapes(shapes)
            vocab_size = tables.counts.shape[1]
            bias = jax.ShapeDtypeStruct((vocab_size,), np.float32)
            args = (tables, _host_ints(), _host_ints(vocab_size), bias)
            return _Call(set_seat, args, ("same",) * 4, "same", (0,))
        case PromptKey(tokens, num_logprobs, values):
            function = functools.partial(
                prompt_logprobs, num_logprobs, values, split_over=context.split_over
            )
            head = head_weight(shapes.params)
            states = _states(shapes, tokens)
            args = (head, states, _host_ints(TARGETS, 2))
            return _Call(function, args, ("head", "same", "same"), "same", ())


def _table_shapes(shapes: ProgramShapes) -> SeatTables:
    """Shapes of the seats' tables, placed as their last tokens are."""
    (num_seats,) = shapes.last_token.shape
    vocab_size = head_weight(shapes.params).shape[0]
    return table_shapes(num_seats, vocab_size, shapes.last_token.sharding)


def _sample_shapes(
    shapes: ProgramShapes, rows: int, mode: SampleMode
) -> tuple[Any, ...]:
    head, last_token = head_weight(shapes.params), shapes.last_token
    hidden = _states(shapes, shapes.context.max_rows)
    args = (head, last_token, hidden, _packed(rows))
    if mode.masked:
        args = (*args, _host_ints(rows, -(-head.shape[0] // 32)))
    if mode.adjusted:
        args = (*args, _table_shapes(shapes))
    return (*args, _host_ints(rows, MOST_LISTED_IDS)) if mode.listed else args


def _states(shapes: ProgramShapes, count: int) -> jax.ShapeDtypeStruct:
    """Shape of hidden states; they lie like the last tokens, on each device."""
    head = head_weight(shapes.params)
    return jax.ShapeDtypeStruct(
        (count, head.shape[1]), head.dtype, sharding=shapes.last_token.sharding
    )


def _shape(array: Any) -> jax.ShapeDtypeStruct:
    # With its place: a program lowered for another placement would not accept it.
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=array.sharding)


def _ints(bucket: StepBucket) -> jax.ShapeDtypeStruct:
    return _host_ints(forward_layout(bucket).size)


def _packed(rows: int) -> jax.ShapeDtypeStruct:
    return _host_ints(rows, len(SamplingColumn))


def _host_ints(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, np.int32)
