"""NVIDIA GPUs as their driver lists them, whether or not jax can use them."""

import subprocess
from typing import NamedTuple

_PATIENCE_S = 20.0
_QUERY = ("name", "driver_version", "memory.total", "memory.used", "compute_cap")
# First drivers that run programs of each CUDA version, by NVIDIA's release notes.
LEAST_DRIVER = {12: 525, 13: 580}


class NvidiaGpu(NamedTuple):
    """One GPU.

    Attributes:
      name: as the driver spells it.
      driver: version of the driver.
      memory_mib: of the card.
      used_mib: of that, what all programs hold together.
      compute_capability: such as "9.0"; empty where the driver does not say.
    """

    name: str
    driver: str
    memory_mib: str
    used_mib: str
    compute_capability: str

    @property
    def driver_major(self) -> int | None:
        """First number of the driver's version; None if it is no number."""
        major = self.driver.partition(".")[0]
        return int(major) if major.isdigit() else None


def list_gpus(command: str = "nvidia-smi") -> list[NvidiaGpu]:
    """Ask the driver's own tool; no tool, no GPUs.

    Args:
      command: the tool.
    """
    ask = [command, f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            ask, capture_output=True, text=True, timeout=_PATIENCE_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return parse_gpus(done.stdout)


def parse_gpus(text: str) -> list[NvidiaGpu]:
    """Read the tool's lines.

    >>> parse_gpus("NVIDIA H200, 575.57.08, 143771, 1, 9.0")[0].driver_major
    575
    """
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return [NvidiaGpu(*row) for row in rows if len(row) == len(_QUERY)]


def newest_cuda(gpus: list[NvidiaGpu]) -> int | None:
    """Return the newest CUDA that the driver runs; None if it is too old for all."""
    major = gpus[0].driver_major if gpus else None
    fits = [cuda for cuda, least in LEAST_DRIVER.items() if major and major >= least]
    return max(fits, default=None)
