"""The paged KV cache and its layout, stated once.

Each layer has one array for keys and one for values, both
`[num_blocks, kv_heads, block_size, head_dim]`: a block of one head is one
contiguous tile, and heads can be split over devices. Block 0 is the null block:
padding may be written there, nothing reads it.
"""

import typing

from flax import struct
from jaxtyping import Array, Float


@struct.dataclass
@typing.no_type_check  # leaves may be tracers, shapes or shardings
class LayerCache:
    """Keys and values of one layer."""

    keys: Float[Array, "N K B D"]
    values: Float[Array, "N K B D"]


@struct.dataclass
@typing.no_type_check
class KVCache:
    """Keys and values of all layers, in layer order."""

    layers: tuple[LayerCache, ...]
