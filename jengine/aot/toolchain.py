"""What device-less compilation needs beside jax, and where it is."""

import importlib.util
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from jengine.errors import JengineError

PLUGINS = ("xla_cuda13", "xla_cuda12")
HOW_TO_INSTALL = (
    "pip install 'jengine[aot]' (about 250 MB; it needs no GPU and no driver), best "
    "into an environment of its own"
)


class MissingToolError(JengineError):
    """Something that device-less compilation needs is not installed."""


def find_plugin() -> str:
    """Return the name of the installed CUDA plugin.

    Raises:
      MissingToolError: there is none.
    """
    for name in PLUGINS:
        if _is_installed(f"jax_plugins.{name}"):
            return name
    raise MissingToolError(
        "compiling for a GPU needs jax's CUDA plugin, which is not installed: "
        f"{HOW_TO_INSTALL}"
    )


def find_ptxas() -> str:
    """Return the path of NVIDIA's assembler.

    Raises:
      MissingToolError: it is neither on the path, nor in a CUDA toolkit in its usual
        place, nor among installed packages.
    """
    found = shutil.which("ptxas") or next(map(str, _existing(_candidates())), None)
    if found is None:
        raise MissingToolError(
            "compiling for a GPU needs NVIDIA's assembler, ptxas, which was not found: "
            f"{HOW_TO_INSTALL}, or install a CUDA toolkit"
        )
    return found


def explain(error: Exception) -> str:
    """Return one line that says what a failed compilation lacked or refused."""
    text = " ".join(str(error).split())
    if "libdevice" in text or ("ptxas" in text and "not found" in text.lower()):
        return (
            f"NVIDIA's compiler files were not found: {HOW_TO_INSTALL} ({text[:200]})"
        )
    return text[:500] or type(error).__name__


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent is missing
        return False


def _candidates() -> list[Path]:
    packages = [Path(folder) / "nvidia" for folder in sys.path if folder]
    wheels = [
        folder / inner / "bin" / "ptxas"
        for folder in packages
        for inner in ("cu13", "cuda_nvcc")
    ]
    return [*wheels, Path("/usr/local/cuda/bin/ptxas")]


def _existing(paths: Iterable[Path]) -> Iterable[Path]:
    return (path for path in paths if path.is_file())
