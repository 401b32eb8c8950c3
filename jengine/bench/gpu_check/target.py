"""The device that a part measures, as far as kernels depend on it."""

import os
from typing import NamedTuple

import jax

from jengine.runner.device import Device, GpuTarget, gpu_target
from jengine.runner.pallas_attention import INTERPRETED
from kernels_pallas.paged_attention import Tiling, tiling_for


class Target(NamedTuple):
    """Where kernels run.

    Attributes:
      device: the first one that jax has.
      gpu: its architecture; that of a common card where it is no GPU.
      interpret: whether kernels are interpreted, because it is none.
    """

    device: Device
    gpu: GpuTarget
    interpret: bool

    @property
    def compile_threads(self) -> int:
        """Programs to compile at a time."""
        return min(8, os.cpu_count() or 1)

    @property
    def attention(self) -> str:
        """The attention backend to measure: interpreted kernels take minutes."""
        return "xla" if self.interpret else "pallas"

    def tiling(
        self,
        *,
        heads: int,
        kv_heads: int,
        head_dim: int,
        dtype: str,
        num_tokens: int,
        num_rows: int,
    ) -> Tiling:
        """Return the tiles that an engine would use."""
        return tiling_for(
            architecture=self.gpu.architecture,
            head_dim=head_dim,
            group=heads // kv_heads,
            dtype=dtype,
            num_tokens=num_tokens,
            num_rows=num_rows,
            num_kv_heads=kv_heads,
            num_sms=self.gpu.num_sms,
        )


def find_target() -> Target:
    """Look at the first device."""
    device = jax.local_devices()[0]
    gpu = gpu_target(device)
    return Target(device, gpu or INTERPRETED, gpu is None)
