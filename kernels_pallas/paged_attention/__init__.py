"""Attention of a step's queries over a paged KV cache.

Rows are requests: row `r` owns the queries `query_start_loc[r]` to
`query_start_loc[r + 1]`, which are the last tokens of its `seq_lens[r]` tokens.
A query sees its own position and those before it. The cache is
`[num_blocks, kv_heads, block_size, head_dim]` for keys and for values. Masking is
by selection: what a query may not see can be NaN.

`reference.py` defines the meaning. `write_kv` and `paged_attention` are plain XLA and
run everywhere; `pallas_write_kv` and `pallas_attention` are Triton kernels for CUDA
devices of compute capability 8.0 or more, cut by a `Tiling` that `tiling_for` chooses
and by `attention_metadata`. That and `xla_metadata` are made once for all layers of a
step.
"""

from kernels_pallas.paged_attention.api import (
    paged_attention,
    pallas_attention,
    pallas_write_kv,
    write_kv,
)
from kernels_pallas.paged_attention.merge import merge_states
from kernels_pallas.paged_attention.metadata import (
    AttentionMetadata,
    attention_metadata,
)
from kernels_pallas.paged_attention.tiling import Tile, Tiling
from kernels_pallas.paged_attention.tuning import tiling_for
from kernels_pallas.paged_attention.xla import XlaMetadata, xla_metadata

__all__ = [
    "AttentionMetadata",
    "Tile",
    "Tiling",
    "XlaMetadata",
    "attention_metadata",
    "merge_states",
    "paged_attention",
    "pallas_attention",
    "pallas_write_kv",
    "tiling_for",
    "write_kv",
    "xla_metadata",
]
