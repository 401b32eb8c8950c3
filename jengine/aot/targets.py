"""The cards that programs can be compiled for: `targets.json`, as values.

A target is what XLA asks of a device before it compiles, and the two figures of the
roofline. Standard library only.
"""

import dataclasses
import functools
import importlib.resources
import json
from typing import Any

from jengine.errors import ConfigError


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An NVIDIA card.

    Attributes:
      name: as it is asked for, such as "h200".
      device_kind: as the driver calls it.
      compute_capability: major and minor.
      accelerated: whether the features of the very architecture are used ("sm_90a").
      num_sms: streaming multiprocessors.
      memory_bytes: memory that the driver reports.
      memory_bandwidth: bytes per second.
      bf16_tflops: dense bfloat16 with float32 accumulation, 10^12 per second.
      l2_bytes: L2 cache.
      clock_ghz: boost clock.
      shared_memory_per_block_optin: bytes that a block may ask for.
      shared_memory_per_core: bytes of an SM.
      threads_per_core: resident threads of an SM.
      fpus_per_core: float32 units of an SM.
    """

    name: str
    device_kind: str
    compute_capability: tuple[int, int]
    accelerated: bool
    num_sms: int
    memory_bytes: int
    memory_bandwidth: int
    bf16_tflops: float
    l2_bytes: int
    clock_ghz: float
    shared_memory_per_block_optin: int
    shared_memory_per_core: int
    threads_per_core: int
    fpus_per_core: int

    @property
    def architecture(self) -> str:
        """Name of the architecture as kernels know it, such as "sm_90"."""
        major, minor = self.compute_capability
        return f"sm_{major}{minor}"

    @property
    def flops_per_s(self) -> float:
        """Most floating-point operations of a second."""
        return self.bf16_tflops * 1e12


def target_names() -> tuple[str, ...]:
    """Return the names of all targets, and of the shorter ways to ask for them."""
    data = _data()
    return (*data["targets"], *data["aliases"])


def find_target(name: str) -> Target:
    """Return a target by name or alias, whatever the case.

    Raises:
      ConfigError: there is none; the message lists those that there are.
    """
    data = _data()
    known = data["aliases"].get(name.lower(), name.lower())
    if known not in data["targets"]:
        raise ConfigError("target", name, ", ".join(sorted(target_names())))
    fields = dict(data["targets"][known])
    family = data["families"][fields.pop("family")]
    capability = tuple(family["compute_capability"])
    merged = family | fields | {"name": known, "compute_capability": capability}
    return Target(**merged)


def target_config_text(target: Target) -> str:
    """Return the description that XLA compiles for, as text.

    It is a `stream_executor.GpuTargetConfigProto`. Limits that are the same on every
    card since compute capability 8.0 are written here, the rest is the target's.
    """
    info = target_info(target)
    lines = [f"  {name}: {_proto_value(value)}" for name, value in info.items()]
    major, minor = target.compute_capability
    feature = "ACCELERATED_FEATURES" if target.accelerated else "NONE"
    capability = f"major: {major} minor: {minor} feature_extension: {feature}"
    return "\n".join(
        [
            "gpu_device_info {",
            *lines,
            f"  cuda_compute_capability {{ {capability} }}",
            "}",
            'platform_name: "CUDA"',
            "dnn_version_info { major: 9 minor: 12 patch: 0 }",
            f'device_description_str: "{target.device_kind}"',
            "",
        ]
    )


def target_info(target: Target) -> dict[str, Any]:
    """Return the scalar fields of the description."""
    return {
        "threads_per_block_limit": 1024,
        "threads_per_warp": 32,
        "shared_memory_per_block": 49152,
        "shared_memory_per_core": target.shared_memory_per_core,
        "shared_memory_per_block_optin": target.shared_memory_per_block_optin,
        "threads_per_core_limit": target.threads_per_core,
        "core_count": target.num_sms,
        "fpus_per_core": target.fpus_per_core,
        "block_dim_limit_x": 2**31 - 1,
        "block_dim_limit_y": 65535,
        "block_dim_limit_z": 65535,
        "thread_dim_limit_x": 1024,
        "thread_dim_limit_y": 1024,
        "thread_dim_limit_z": 64,
        "registers_per_core_limit": 65536,
        "registers_per_block_limit": 65536,
        "memory_bandwidth": target.memory_bandwidth,
        "device_memory_size": target.memory_bytes,
        "l2_cache_size": target.l2_bytes,
        "clock_rate_ghz": target.clock_ghz,
        "name": target.device_kind,
        "device_vendor": "NVIDIA Corporation",
        "device_address_bits": 64,
        # Versions of the toolkit that the plugin brings; no library is loaded.
        "driver_version": "13.0.0",
        "runtime_version": "13.0.0",
        "compile_time_toolkit_version": "13.0.0",
        "dnn_version": "9.12.0",
    }


def _proto_value(value: object) -> str:
    return json.dumps(value) if isinstance(value, str) else str(value)


@functools.cache
def _data() -> dict[str, Any]:
    text = importlib.resources.files("jengine.aot").joinpath("targets.json").read_text()
    return json.loads(text)
