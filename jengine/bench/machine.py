"""The machine and the software behind a measurement, for its JSON file."""

import dataclasses
import importlib.metadata
import os
import pathlib
import platform
import subprocess
from collections.abc import Iterable
from typing import Any, NamedTuple

import jengine

_PACKAGES = ("jax", "jaxlib", "flax", "numpy", "transformers")
_GIT_PATIENCE_S = 5.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where something was measured.

    Attributes:
      cpu: model of the processor.
      cores: CPUs that the process may use.
      memory_bytes: of the machine; None where psutil, which tells, is missing.
      system: kernel and architecture.
      python: version of the interpreter.
      versions: of jengine and of what it stands on.
      git_commit: of jengine's checkout, with "+" if files differ from it; None where
        it was installed.
    """

    cpu: str
    cores: int
    memory_bytes: int | None
    system: str
    python: str
    versions: tuple[tuple[str, str], ...]
    git_commit: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {**dataclasses.asdict(self), "versions": dict(self.versions)}

    def __str__(self) -> str:
        """Return one line for a terminal."""
        names = ", ".join(f"{name} {version}" for name, version in self.versions)
        commit = ""
        if self.git_commit:
            changed = "+" if self.git_commit.endswith("+") else ""
            commit = f", commit {self.git_commit[:12]}{changed}"
        return f"{self.cpu}, {self.cores} cores; Python {self.python}, {names}{commit}"


class Memory(NamedTuple):
    """Main memory.

    Attributes:
      total: bytes of the machine.
      available: bytes that programs could still get.
    """

    total: int
    available: int


def describe_machine() -> Machine:
    """Look at this machine."""
    memory = find_memory()
    return Machine(
        cpu=cpu_model(),
        cores=cpu_count(),
        memory_bytes=None if memory is None else memory.total,
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=platform.python_version(),
        versions=(("jengine", jengine.__version__), *_versions(_PACKAGES)),
        git_commit=git_commit(pathlib.Path(jengine.__file__).parent),
    )


def find_memory() -> Memory | None:
    """Return how much memory there is; None without psutil."""
    try:
        import psutil  # the doctor's report says so where it is missing
    except ModuleNotFoundError:
        return None
    found = psutil.virtual_memory()
    return Memory(found.total, found.available)


def cpu_count() -> int:
    """Return how many CPUs this process may use."""
    return len(allowed_cpus())


def allowed_cpus() -> list[int]:
    """Return the numbers of the CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))  # macOS does not tell


def cpu_model(cpuinfo: pathlib.Path = pathlib.Path("/proc/cpuinfo")) -> str:
    """Return the processor's name as the kernel spells it."""
    if cpuinfo.is_file():
        for line in cpuinfo.read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    return platform.processor() or platform.machine()


def git_commit(folder: pathlib.Path) -> str | None:
    """Return the commit that a folder's files are from; None if nobody knows.

    A "+" at the end says that tracked files have been changed since.
    """
    # A virtual environment may lie in somebody else's checkout.
    is_tracked = _git(folder, "ls-files", "--error-unmatch", "__init__.py") is not None
    commit = _git(folder, "rev-parse", "HEAD") if is_tracked else None
    if commit is None:
        return None
    is_changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return commit + ("+" if is_changed else "")


def _git(folder: pathlib.Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=_GIT_PATIENCE_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _versions(names: Iterable[str]) -> Iterable[tuple[str, str]]:
    for name in names:
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
