"""What of a device decides which programs it gets."""

import dataclasses

import jax
import pytest

from jengine.runner import device as devices
from jengine.runner.device import GpuTarget


@dataclasses.dataclass
class Device:
    """As much of a jax device as is asked."""

    platform: str = "gpu"
    compute_capability: str | None = "9.0"
    core_count: int = 132


def _unchecked(function):
    """Take the type check off, so that a stand-in passes for a device."""
    return getattr(function, "__wrapped__", function)


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (Device(), GpuTarget("sm_90", 132)),
        (Device(compute_capability="8.6", core_count=84), GpuTarget("sm_86", 84)),
        (Device(compute_capability="12.0", core_count=170), GpuTarget("sm_120", 170)),
        (Device(compute_capability="gfx942"), None),  # AMD's name for its own
        (Device(compute_capability=None), None),
        (Device(platform="cpu"), None),
    ],
)
def test_gpu_target(device, expected, monkeypatch):
    monkeypatch.setattr(
        devices, "compute_capability", _unchecked(devices.compute_capability)
    )
    assert _unchecked(devices.gpu_target)(device) == expected


def test_the_cpu_has_none():
    assert devices.gpu_target(jax.local_devices(backend="cpu")[0]) is None
