"""What a launch of the attention kernel is given: arrays, and what is static."""

import dataclasses
from typing import Any, NamedTuple

from kernels_pallas.paged_attention.tiling import Tile, next_power_of_2


class Operands(NamedTuple):
    """The arrays of a launch, or the kernel's references to them."""

    queries: Any  # [T, H, D]
    keys: Any  # [N, K, B, D]
    values: Any  # [N, K, B, D]
    block_tables: Any  # [R, P]
    query_start_loc: Any  # [R+1]
    seq_lens: Any  # [R]
    tile_rows: Any = None  # [W], of the prefill launch alone
    tile_tokens: Any = None  # [W]
    key_scales: Any = None  # [N, K, B]
    value_scales: Any = None  # [N, K, B]
    sinks: Any = None  # [H]
    attended: Any = None  # [T, H, D], what the decode launch wrote; updated in place


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is static of a launch.

    Attributes:
      tile: the work of one program.
      scale: factor on the scores.
      group: query heads of one KV head.
      block_size: tokens of a cache block.
      head_dim: features of a head.
      num_tokens: tokens of the step, padded.
      sliding_window: last positions that a query sees, itself included.
      soft_cap: bound that scores approach.
      single_token_rows: whether token i is row i's only one.
      tiled: whether programs are indexed by tiles of several tokens of a row, as in
        the prefill launch; else by rows of one query.
    """

    tile: Tile
    scale: float
    group: int
    block_size: int
    head_dim: int
    num_tokens: int
    sliding_window: int | None = None
    soft_cap: float | None = None
    single_token_rows: bool = False
    tiled: bool = False

    @property
    def width(self) -> int:
        """Features that a program holds: Triton wants powers of 2."""
        return next_power_of_2(self.head_dim)

    @property
    def queries(self) -> int:
        """Tokens that a program holds."""
        return self.tile.queries(self.group)
