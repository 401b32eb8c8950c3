"""Which card, which driver, which versions: what every other number depends on."""

import importlib.metadata
import platform
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

import jax

from jengine.bench.gpu_check.recorder import Recorder
from jengine.runner.device import compute_capability, gpu_target

_PACKAGES = (
    "jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin", "flax", "numpy",
    "torch", "transformers", "triton",
)  # fmt: skip
_QUERY = "name,driver_version,memory.total,memory.used,clocks.sm,clocks.mem,power.limit"


def run(recorder: Recorder) -> None:
    """Describe the device that jax would use."""
    recorder.measure("device", describe, least_s=0.0)


def describe() -> Mapping[str, Any]:
    """Return what is known of the device and of the software."""
    device = jax.local_devices()[0]
    target = gpu_target(device)
    stats = device.memory_stats() or {}
    return {
        "platform": device.platform,
        "device_kind": device.device_kind,
        "compute_capability": compute_capability(device),
        "num_sms": None if target is None else target.num_sms,
        "memory_limit_bytes": stats.get("bytes_limit"),
        "num_devices": jax.local_device_count(),
        "jax": jax.__version__,
        "python": platform.python_version(),
        "packages": _versions(),
        "nvidia_smi": _nvidia_smi(),
        "summary": f"{device.device_kind}, jax {jax.__version__}",
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _nvidia_smi() -> dict[str, str] | None:
    """Return what the driver says; None where it is not installed."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    command = [program, f"--query-gpu={_QUERY}", "--format=csv,noheader"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=20, check=False
    )
    values = [value.strip() for value in done.stdout.partition("\n")[0].split(",")]
    return dict(zip(_QUERY.split(","), values, strict=False))
