"""What every kind of checkpoint offers once it is open."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np


@runtime_checkable
class TensorReader(Protocol):
    """Named tensors in files; nothing is read before it is asked for."""

    def names(self) -> Iterable[str]:
        """Return the Hugging Face names of all tensors."""
        ...

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        ...

    def dtype(self, name: str) -> np.dtype:
        """Return the number format that `read` gives."""
        ...

    def location(self, name: str) -> str:
        """Return the file that holds a tensor, for messages."""
        ...

    def read(self, name: str) -> np.ndarray:
        """Return the values of a tensor.

        Raises:
          CheckpointError: if the file does not hold what its header says.
        """
        ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """An open checkpoint.

    Attributes:
      path: the local folder or the `.gguf` file.
      config: what `config.json` holds, or its equal made from GGUF metadata.
      generation_config: what `generation_config.json` holds, empty if there is none.
      tensors: the weights.
      tokenizer_path: the folder that holds the tokenizer's files.
      gguf_file: name of the `.gguf` file inside `tokenizer_path` that holds the
        tokenizer; None where it has files of its own.
    """

    path: str
    config: Mapping[str, Any]
    generation_config: Mapping[str, Any]
    tensors: TensorReader
    tokenizer_path: str
    gguf_file: str | None = None

    @property
    def dtype(self) -> str:
        """The number format to use where nobody asks for one.

        What the config says, else that of the file's first tensor.
        """
        for key in ("dtype", "torch_dtype"):
            if isinstance(self.config.get(key), str):
                return self.config[key].removeprefix("torch.")
        return str(self.tensors.dtype(next(iter(self.tensors.names()))))
