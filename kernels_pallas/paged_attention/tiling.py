"""How the attention kernel cuts its work into programs."""

import dataclasses

# The matrix units want 16 rows and columns; all are powers of 2 for Triton.
LEAST_SIZES = {"rows": 16, "keys": 16, "num_splits": 1, "num_warps": 1}


@dataclasses.dataclass(frozen=True, slots=True)
class Tile:
    """What one program of the kernel does, and how Triton compiles it.

    Attributes:
      rows: query heads that a program holds, tokens x heads of one KV head; a
        power of 2, at least 16, and at least the group.
      keys: keys of one iteration, a power of 2.
      num_splits: programs that share the keys of one row, a power of 2.
      num_warps: warps of a program, a power of 2.
      num_stages: depth of Triton's software pipeline.
    """

    rows: int
    keys: int
    num_splits: int = 1
    num_warps: int = 4
    num_stages: int = 5

    def __post_init__(self) -> None:
        """Refuse sizes that Triton cannot compile.

        Raises:
          ValueError: a size that is too small or no power of 2.
        """
        for name, least in LEAST_SIZES.items():
            size = getattr(self, name)
            if size < least or size != next_power_of_2(size):
                raise ValueError(f"{name} is {size}; use a power of 2, {least} or more")
        if self.num_stages < 1:
            raise ValueError(f"num_stages is {self.num_stages}; use 1 or more")

    def queries(self, group: int) -> int:
        """Return the tokens that one program holds.

        Raises:
          ValueError: not even one token's heads fit.
        """
        if group > self.rows:
            raise ValueError(
                f"{group} query heads of a KV head do not fit in {self.rows} rows; "
                f"use a tile of {next_power_of_2(group)} or more"
            )
        return self.rows // group


@dataclasses.dataclass(frozen=True, slots=True)
class Tiling:
    """Tiles of both launches of the kernel.

    Attributes:
      decode: for rows with one query.
      prefill: for rows with more; its `num_splits` must be 1.
    """

    decode: Tile
    prefill: Tile

    def __post_init__(self) -> None:
        """Refuse a prefill tile with splits.

        Raises:
          ValueError: see above.
        """
        if self.prefill.num_splits != 1:
            raise ValueError(
                f"the prefill tile has {self.prefill.num_splits} splits; use 1"
            )


def next_power_of_2(number: int) -> int:
    """Return the smallest power of 2 that is not below a positive number."""
    return 1 << (number - 1).bit_length()
