"""Fill parameters from named tensors, and refuse whatever does not fit.

The names and shapes of all tensors are compared with what the parameters need
before the first one is read. A parameter made of several tensors is allocated once
and filled piece by piece, so that loading needs little more memory than the result.
"""

import dataclasses
import functools
import re
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import ml_dtypes
import numpy as np

from jengine.checkpoint.checkpoint import Checkpoint, TensorReader
from jengine.errors import CheckpointError

PathT = TypeVar("PathT", bound=Hashable)

_DTYPES = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
# Buffers that old checkpoints saved although they follow from the config, and the
# head that a tied model does not have.
_IGNORABLE = re.compile(r"(.*\.)?rotary_emb\.inv_freq|lm_head\.weight")
_MAX_NAMED = 5  # tensors named in one message
# Dequantising is numpy arithmetic, which runs in parallel. Few, because each thread
# adds one parameter to the memory that loading needs.
_WORKERS = 2


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """A parameter to fill.

    Attributes:
      shape: of the parameter.
      names: the tensors that make it, concatenated on axis 0.
    """

    shape: tuple[int, ...]
    names: tuple[str, ...]


def load_parameters(
    checkpoint: Checkpoint, targets: Mapping[PathT, Target], dtype: object
) -> dict[PathT, np.ndarray]:
    """Return all parameters; see `iter_parameters`."""
    return dict(iter_parameters(checkpoint, targets, dtype))


def iter_parameters(
    checkpoint: Checkpoint, targets: Mapping[PathT, Target], dtype: object
) -> Iterator[tuple[PathT, np.ndarray]]:
    """Return an iterator over paths and parameters, each read when it is reached.

    A caller that moves each array to a device before it takes the next never has
    more than one on the host.

    Args:
      checkpoint: where the tensors are.
      targets: what to fill.
      dtype: "float32", "bfloat16", "float16" or the numpy dtype of one of them.

    Raises:
      CheckpointError: at once, if a tensor is missing, unknown or has another shape
        than its parameter; on the way, if a file is damaged or a value overflows
        `dtype`.
    """
    wanted = _DTYPES.get(str(dtype))
    if wanted is None:
        raise CheckpointError(
            f"weights cannot be converted to {dtype!r}; allowed: {', '.join(_DTYPES)}"
        )
    _check_names(checkpoint, targets)
    for target in targets.values():
        _check_shape(checkpoint.tensors, target)
    return _ahead(
        (path, functools.partial(_fill, checkpoint.tensors, target, wanted))
        for path, target in targets.items()
    )


def _ahead(
    jobs: Iterable[tuple[PathT, Callable[[], np.ndarray]]],
) -> Iterator[tuple[PathT, np.ndarray]]:
    """Yield the jobs' results in order, working on the next few meanwhile."""
    pending: deque[tuple[PathT, Future[np.ndarray]]] = deque()
    with ThreadPoolExecutor(_WORKERS, "jengine-load") as pool:
        for path, job in jobs:
            pending.append((path, pool.submit(job)))
            if len(pending) > _WORKERS:
                done, future = pending.popleft()
                yield done, future.result()
        for done, future in pending:
            yield done, future.result()


def _check_names(checkpoint: Checkpoint, targets: Mapping[PathT, Target]) -> None:
    needed = {name for target in targets.values() for name in target.names}
    found = set(checkpoint.tensors.names())
    missing = sorted(needed - found)
    if missing:
        raise CheckpointError(
            f"{checkpoint.path}: {_listed(missing)} missing; the model's config asks "
            "for it, so the checkpoint is incomplete or its config is of another model"
        )
    extra = sorted(n for n in found - needed if not _IGNORABLE.fullmatch(n))
    if extra:
        raise CheckpointError(
            f"{checkpoint.tensors.location(extra[0])}: {_listed(extra)} unknown to "
            "the model that the config describes; leaving it out would change the "
            "model, so check the config's architecture, biases and layer count"
        )


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_MAX_NAMED])
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"tensor {shown}{more} is"


def _check_shape(tensors: TensorReader, target: Target) -> None:
    shapes = [tensors.shape(name) for name in target.names]
    tails_fit = all(shape[1:] == target.shape[1:] for shape in shapes)
    rows = sum(shape[0] for shape in shapes if shape)
    if all(shapes) and tails_fit and rows == target.shape[0]:
        return
    found = ", ".join(
        f"{name} {list(shape)}"
        for name, shape in zip(target.names, shapes, strict=True)
    )
    together = "" if len(shapes) == 1 else " when stacked"
    raise CheckpointError(
        f"{tensors.location(target.names[0])}: the shape of {found} does not fit; "
        f"the config asks for {list(target.shape)}{together}"
    )


def _fill(tensors: TensorReader, target: Target, dtype: np.dtype) -> np.ndarray:
    if len(target.names) == 1:
        return _read(tensors, target.names[0], dtype)
    filled = np.empty(target.shape, dtype)
    start = 0
    for name in target.names:
        piece = _read(tensors, name, dtype)
        filled[start : start + len(piece)] = piece
        start += len(piece)
    return filled


def _read(tensors: TensorReader, name: str, dtype: np.dtype) -> np.ndarray:
    values = tensors.read(name)
    if values.dtype == dtype:
        return values
    with np.errstate(over="ignore", invalid="ignore"):  # looked for below instead
        converted = values.astype(dtype)
    if _can_overflow(values.dtype, dtype):
        _check_overflow(tensors, name, values, converted)
    return converted


def _can_overflow(source: np.dtype, target: np.dtype) -> bool:
    return float(ml_dtypes.finfo(source).max) > float(ml_dtypes.finfo(target).max)


def _check_overflow(
    tensors: TensorReader, name: str, values: np.ndarray, converted: np.ndarray
) -> None:
    # Values that are not finite in the file already are the checkpoint's own affair.
    lost = np.isfinite(values) & ~np.isfinite(converted)
    if lost.any():
        raise CheckpointError(
            f"{tensors.location(name)}: tensor {name} holds {values[lost][0]}, which "
            f"overflows {converted.dtype} (largest value "
            f"{ml_dtypes.finfo(converted.dtype).max}); use bfloat16 or float32"
        )
