"""Devices: their type, and what of a GPU decides which programs it gets."""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax

if TYPE_CHECKING:
    # To type checkers `jax.Device` is a variable: jax takes it from a compiled module.
    Device = Any
else:
    Device = jax.Device


class GpuTarget(NamedTuple):
    """An NVIDIA GPU, as far as kernels depend on it.

    Attributes:
      architecture: "sm_80", "sm_90".
      num_sms: its streaming multiprocessors.
    """

    architecture: str
    num_sms: int


def compute_capability(device: Device) -> tuple[int, int] | None:
    """Return an NVIDIA GPU's compute capability; None for any other device."""
    found = getattr(device, "compute_capability", None)
    if device.platform != "gpu" or not found or not found[0].isdigit():
        return None
    major, _, minor = found.partition(".")
    return int(major), int(minor or 0)


def gpu_target(device: Device) -> GpuTarget | None:
    """Return what kernels need to know of a GPU; None for any other device."""
    capability = compute_capability(device)
    if capability is None:
        return None
    return GpuTarget(f"sm_{capability[0]}{capability[1]}", device.core_count)
