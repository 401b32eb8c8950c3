"""The choice of tiles for one bucket of steps on one kind of device."""

import dataclasses

import numpy as np
from jax.typing import DTypeLike

from kernels_pallas.paged_attention.tiling import Tile, Tiling, next_power_of_2
from kernels_pallas.paged_attention.tuning_table import TABLE, Entry

OLDEST = 80  # compute capability 8.0: bfloat16 and asynchronous copies
OLDEST_E4M3 = 89
# Devices without entries of their own use those of one that holds no more; so do
# devices that are not known.
STANDS_IN = {86: 89, 87: 80, 100: 90, 103: 90}
HOLDS_LEAST = 89
MOST_SPLITS = 32
PROGRAMS_PER_SM = 2  # of the decode launch, that an SM holds by its shared memory


def tiling_for(  # noqa: PLR0913 - what a bucket and a device are
    *,
    architecture: str,
    head_dim: int,
    group: int,
    dtype: DTypeLike,
    num_tokens: int,
    num_rows: int,
    num_kv_heads: int,
    num_sms: int,
    table: tuple[Entry, ...] = TABLE,
) -> Tiling:
    """Return the tiles for one bucket of steps on one kind of device.

    Args:
      architecture: compute capability of the device, as `sm_90`.
      head_dim: features of a head.
      group: query heads of one KV head.
      dtype: of the cached keys and values.
      num_tokens: tokens of the step, padded.
      num_rows: rows of the step, padded.
      num_kv_heads: KV heads on one device.
      num_sms: multiprocessors of the device.
      table: entries to choose from; the first that fits counts.

    Raises:
      ValueError: a device that is too old, or sizes that no entry covers.
    """
    capability, name = capability_of(architecture), np.dtype(dtype).name
    if name == "float8_e4m3fn" and capability < OLDEST_E4M3:
        raise ValueError(
            f"a cache of {name} needs sm_{OLDEST_E4M3} or newer, and the device is "
            f"{architecture}; use int8, float8_e5m2 or bfloat16"
        )

    def tile(launch: str) -> Tile:
        for entry in table:
            if entry.launch == launch and entry.fits(
                capability=stand_in(capability, table),
                head_dim=head_dim,
                group=group,
                dtype=name,
                num_tokens=num_tokens,
            ):
                rows = max(entry.tile.rows, next_power_of_2(group))
                return dataclasses.replace(entry.tile, rows=rows)
        raise ValueError(
            f"no {launch} tile for {architecture}, {head_dim} features, {group} query "
            f"heads a KV head, {name} and {num_tokens} tokens; use "
            "attention_backend='xla', or pass a table or a Tiling"
        )

    splits = splits_for(num_rows=num_rows, num_kv_heads=num_kv_heads, num_sms=num_sms)
    decode = dataclasses.replace(tile("decode"), num_splits=splits)
    return Tiling(decode=decode, prefill=tile("prefill"))


def splits_for(*, num_rows: int, num_kv_heads: int, num_sms: int) -> int:
    """Return into how many programs to divide the keys of each row.

    As many, to a power of 2, as the device holds at once; one where rows and heads
    fill it alone.
    """
    wanted = num_sms * PROGRAMS_PER_SM // (num_rows * num_kv_heads)
    return min(MOST_SPLITS, 1 << max(0, wanted.bit_length() - 1))


def capability_of(architecture: str) -> int:
    """Return the compute capability x 10 of an architecture such as `sm_90a`.

    Raises:
      ValueError: no such name, or a device without what the kernel needs.
    """
    digits = architecture.removeprefix("sm_").rstrip("af")
    if not (architecture.startswith("sm_") and digits.isdecimal()):
        raise ValueError(f"architecture is {architecture!r}; expected one as 'sm_90'")
    if int(digits) < OLDEST:
        raise ValueError(
            f"{architecture} is too old for the attention kernel, which needs "
            f"sm_{OLDEST}; use attention_backend='xla'"
        )
    return int(digits)


def stand_in(capability: int, table: tuple[Entry, ...]) -> int:
    """Return the capability whose entries to use."""
    known = {int(a.removeprefix("sm_")) for e in table for a in e.architectures}
    if capability in known:
        return capability
    return STANDS_IN.get(capability, HOLDS_LEAST)
