"""How much lies in a folder, and whether more can be put there."""

import os
import pathlib
import shutil
from typing import NamedTuple


class FolderFacts(NamedTuple):
    """A folder.

    Attributes:
      num_files: in it and below.
      num_bytes: of these files together.
      free_bytes: of the disk that it lies, or would lie, on.
      can_write: whether files can be added.
    """

    num_files: int
    num_bytes: int
    free_bytes: int
    can_write: bool


def look_at_folder(path: str | os.PathLike[str]) -> FolderFacts:
    """Return what lies in a folder; one that is not there yet is empty."""
    folder = pathlib.Path(path)
    sizes = [_size(pathlib.Path(at) / n) for at, _, ns in os.walk(folder) for n in ns]
    there = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    return FolderFacts(
        num_files=len(sizes),
        num_bytes=sum(sizes),
        free_bytes=shutil.disk_usage(there).free,
        can_write=there.is_dir() and os.access(there, os.W_OK),
    )


def _size(path: pathlib.Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:  # another process has removed it meanwhile
        return 0
