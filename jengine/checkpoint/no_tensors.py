"""The tensors of a checkpoint that was opened without its weights."""

from collections.abc import Iterable
from typing import NoReturn

import numpy as np

from jengine.errors import CheckpointError


class NoTensors:
    """Has no names; whoever reads nevertheless is told why."""

    def __init__(self, path: str) -> None:
        """Stand in for the weights of the checkpoint at `path`."""
        self._path = path

    def names(self) -> Iterable[str]:
        """Return nothing."""
        return ()

    def shape(self, name: str) -> tuple[int, ...]:
        """Raise, as everything that needs a tensor does."""
        self._refuse(name)

    def dtype(self, name: str) -> np.dtype:
        """Raise likewise."""
        self._refuse(name)

    def location(self, name: str) -> str:
        """Raise likewise."""
        self._refuse(name)

    def read(self, name: str) -> np.ndarray:
        """Raise likewise."""
        self._refuse(name)

    def _refuse(self, name: str) -> NoReturn:
        raise CheckpointError(f"{self._path} was opened without weights: no {name}")
