"""Tiles of the attention kernel by device, as data.

The first entry that fits counts. Each was compiled ahead of time for its
architectures; it spills no register there and fits into shared memory, unless a
larger group makes its rows grow. None has been timed on a device yet.
"""

import dataclasses
from typing import Literal

from kernels_pallas.paged_attention.tiling import Tile

AHEAD_OF_TIME = (
    "compiled ahead of time only (jax 0.11.2, ptxas 13.0): 0 spill bytes; "
    "not timed on a device"
)
HALF = ("bfloat16", "float16")
BYTE = ("int8", "float8_e4m3fn", "float8_e5m2")
FULL = ("float32",)
ALL = ("sm_80", "sm_89", "sm_90")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A tile and where it applies.

    Attributes:
      launch: which launch of the kernel.
      architectures: compute capabilities, as `sm_90`.
      dtypes: names of the cache's dtypes.
      max_head_dim: most features of a head.
      tile: its rows grow with the group, its splits with the device.
      provenance: how it was found.
      max_group: most query heads of a KV head; None for any number.
      max_tokens: most tokens of the step; None for any number.
    """

    launch: Literal["decode", "prefill"]
    architectures: tuple[str, ...]
    dtypes: tuple[str, ...]
    max_head_dim: int
    tile: Tile
    provenance: str = AHEAD_OF_TIME
    max_group: int | None = None
    max_tokens: int | None = None

    def fits(
        self,
        *,
        capability: int,
        head_dim: int,
        group: int,
        dtype: str,
        num_tokens: int,
    ) -> bool:
        """Return whether the tile is meant for this."""
        return (
            f"sm_{capability}" in self.architectures
            and dtype in self.dtypes
            and head_dim <= self.max_head_dim
            and (self.max_group is None or group <= self.max_group)
            and (self.max_tokens is None or num_tokens <= self.max_tokens)
        )


HALF_OR_BYTE = HALF + BYTE
FEW_TOKENS = 128  # of a step: smaller tiles give more programs

TABLE = (
    # Five stages, because the table is loaded before the keys: fewer leave one buffer.
    Entry(
        launch="decode",
        architectures=ALL,
        dtypes=HALF_OR_BYTE,
        max_head_dim=128,
        max_group=16,
        tile=Tile(16, 64, num_warps=4, num_stages=5),
    ),
    Entry(
        launch="decode",
        architectures=ALL,
        dtypes=HALF_OR_BYTE,
        max_head_dim=128,
        max_group=64,
        tile=Tile(64, 32, num_warps=4, num_stages=5),
    ),
    Entry(
        launch="decode",
        architectures=ALL,
        dtypes=HALF_OR_BYTE,
        max_head_dim=128,
        tile=Tile(128, 32, num_warps=8, num_stages=5),
    ),
    Entry(
        launch="decode",
        architectures=ALL,
        dtypes=HALF_OR_BYTE,
        max_head_dim=256,
        max_group=16,
        tile=Tile(16, 32, num_warps=4, num_stages=5),
    ),
    Entry(
        launch="decode",
        architectures=ALL,
        dtypes=HALF_OR_BYTE,
        max_head_dim=256,
        max_group=64,  # 128 rows spill, and are too large for sm_89
        tile=Tile(64, 16, num_warps=8, num_stages=5),
    ),
    Entry(
        launch="decode",
        architectures=ALL,
        dtypes=FULL,
        max_head_dim=64,
        tile=Tile(16, 32, num_warps=4, num_stages=5),
    ),
    Entry(
        launch="decode",
        architectures=ALL,
        dtypes=FULL,
        max_head_dim=256,
        tile=Tile(16, 16, num_warps=4, num_stages=5),
    ),
    Entry(
        launch="prefill",
        architectures=ALL,
        dtypes=HALF_OR_BYTE,
        max_head_dim=128,
        max_group=16,
        max_tokens=FEW_TOKENS,
        tile=Tile(64, 32, num_warps=4, num_stages=5),
    ),
    Entry(
        launch="prefill",
        architectures=("sm_90",),
        dtypes=HALF_OR_BYTE,
        max_head_dim=128,
        tile=Tile(128, 64, num_warps=8, num_stages=5),
    ),
    Entry(
        launch="prefill",
        architectures=("sm_80", "sm_89"),
        dtypes=HALF_OR_BYTE,
        max_head_dim=128,
        tile=Tile(128, 32, num_warps=8, num_stages=5),
    ),
    Entry(
        launch="prefill",
        architectures=("sm_90",),
        dtypes=HALF_OR_BYTE,
        max_head_dim=256,
        tile=Tile(128, 32, num_warps=8, num_stages=5),
    ),
    Entry(
        launch="prefill",
        architectures=("sm_89",),
        dtypes=HALF,
        max_head_dim=256,
        tile=Tile(64, 16, num_warps=4, num_stages=5),
    ),
    Entry(
        launch="prefill",
        architectures=("sm_80", "sm_89"),
        dtypes=HALF_OR_BYTE,
        max_head_dim=256,
        tile=Tile(64, 32, num_warps=8, num_stages=5),
    ),
    # Products in full float32 have no matrix units: small tiles.
    Entry(
        launch="prefill",
        architectures=ALL,
        dtypes=FULL,
        max_head_dim=256,
        tile=Tile(32, 16, num_warps=8, num_stages=5),
    ),
)
