"""Weights in safetensors files: one file, or shards that an index lists.

The index decides: files and tensors that it does not list are not looked at. Without
one it is `model.safetensors`, or where that is missing every other `model*` file. All
headers are checked on opening, so that a damaged or missing shard is found before
any memory is spent.
"""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from jengine.errors import CheckpointError

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"

logger = logging.getLogger(__name__)

_LFS_START = b"version https://git-lfs"
_DTYPES = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}


class SafetensorsReader:
    """Named tensors in one or more safetensors files."""

    def __init__(self, folder: Path):
        """Open all files and check their headers.

        Raises:
          CheckpointError: if a file is missing or damaged, or does not hold what
            the index says; or two files without an index hold the same tensor.
        """
        self._files = _locate_tensors(folder)
        self._handles = {path: _open(path) for path in set(self._files.values())}
        self._check_index()

    def names(self) -> Iterable[str]:
        """Return the names of all tensors."""
        return self._files.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return tuple(self._header(name).get_shape())

    def dtype(self, name: str) -> np.dtype:
        """Return the number format of a tensor.

        Raises:
          CheckpointError: if it is not one of the floating point formats.
        """
        stored = self._header(name).get_dtype()
        if stored not in _DTYPES:
            raise CheckpointError(
                f"{self._files[name]}: tensor {name} is stored as {stored}; "
                f"supported: {', '.join(_DTYPES)}"
            )
        return _DTYPES[stored]

    def location(self, name: str) -> str:
        """Return the file that holds a tensor."""
        return str(self._files[name])

    def read(self, name: str) -> np.ndarray:
        """Return the values of a tensor.

        Raises:
          CheckpointError: if they cannot be read.
        """
        path, dtype = self._files[name], self.dtype(name)
        try:
            values = self._handles[path].get_tensor(name)
        except (SafetensorError, OSError, ValueError) as error:
            raise CheckpointError(f"{path}: tensor {name}: {error}") from error
        return values if values.dtype == dtype else values.view(dtype)

    def _header(self, name: str) -> Any:
        return self._handles[self._files[name]].get_slice(name)

    def _check_index(self) -> None:
        held = {path: set(handle.keys()) for path, handle in self._handles.items()}
        for name, path in self._files.items():
            if name not in held[path]:
                raise CheckpointError(
                    f"{path}: tensor {name} is missing, although {INDEX_NAME} places "
                    "it in this file; take index and shards from the same source"
                )


def has_weights(folder: Path) -> bool:
    """Return whether there is anything that `SafetensorsReader` would open."""
    return (folder / INDEX_NAME).exists() or bool(_unindexed_files(folder))


def _unindexed_files(folder: Path) -> list[Path]:
    """Return the files to read where no index says it.

    Others beside `model.safetensors` are copies in other formats, as a rule.
    """
    single = folder / SINGLE_NAME
    return [single] if single.exists() else sorted(folder.glob("model*.safetensors"))


def _locate_tensors(folder: Path) -> dict[str, Path]:
    """Return the file of each tensor."""
    index, single = folder / INDEX_NAME, folder / SINGLE_NAME
    if index.exists():
        files = _indexed_files(index)
        if not single.is_file() or any(path.is_file() for path in files.values()):
            return files
        logger.warning(
            "%s: none of the files that it names is there, so %s beside it is read; "
            "remove the index",
            index,
            SINGLE_NAME,
        )
    return _all_tensors(_unindexed_files(folder) or [single])


def _all_tensors(paths: Sequence[Path]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for path in paths:
        for name in _open(path).keys():  # noqa: SIM118 (no dict)
            if name in files:
                raise CheckpointError(
                    f"{path}: tensor {name} is also in {files[name].name}, and there "
                    f"is no {INDEX_NAME} to decide; download it, or remove the file "
                    "that does not belong to the model"
                )
            files[name] = path
    return files


def _indexed_files(index: Path) -> dict[str, Path]:
    """Return the file of each tensor that an index lists."""
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, Mapping) or not weight_map:
        raise CheckpointError(f"{index}: weight_map is missing, empty or no object")
    return {
        name: index.parent / _inner_name(index, file)
        for name, file in weight_map.items()
    }


def _inner_name(index: Path, file: object) -> str:
    """Return a file name of the index, unless it leads out of the folder."""
    if (
        not isinstance(file, str)
        or PurePosixPath(file).is_absolute()
        or ".." in PurePosixPath(file).parts
    ):
        raise CheckpointError(
            f"{index}: weight_map names the file {file!r}; it must be a path inside "
            "the checkpoint's folder"
        )
    return file


def _open(path: Path) -> Any:
    if not path.is_file():
        raise CheckpointError(
            f"{path}: the file is missing; download the checkpoint again"
        )
    check_downloaded(path)
    try:
        return safe_open(path, framework="np")
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{path}: not a whole safetensors file ({error}; "
            f"{path.stat().st_size} bytes); download it again"
        ) from error


def check_downloaded(path: Path) -> None:
    """Refuse the two stand-ins that incomplete downloads leave behind.

    Raises:
      CheckpointError: if the file is empty or a Git LFS pointer.
    """
    with path.open("rb") as file:
        start = file.read(len(_LFS_START))
    if not start:
        raise CheckpointError(f"{path}: the file is empty; download it again")
    if start == _LFS_START:
        raise CheckpointError(
            f"{path}: a Git LFS pointer, not the file itself; run `git lfs pull` in "
            "the repository or download the file"
        )


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file.

    Raises:
      CheckpointError: if there is none.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # the last: too deep
        raise CheckpointError(
            f"{path}: cannot be read as JSON: {error}; mend it or download it again"
        ) from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: holds {type(value).__name__}, not an object")
    return value
