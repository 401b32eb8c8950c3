"""Attention of a step's queries over a paged KV cache.

Rows are requests: row `r` owns the queries `query_start_loc[r]` to
`query_start_loc[r + 1]`, which are the last tokens of its `seq_lens[r]` tokens.
A query sees its own position and those before it. The cache is
`[num_blocks, kv_heads, block_size, head_dim]` for keys and for values. Masking is
by selection: what a query may not see can be NaN.
"""

from kernels_pallas.paged_attention.api import paged_attention, write_kv

__all__ = ["paged_attention", "write_kv"]
