"""The arrays of one step: the contract between a model and whoever runs it.

Rows are requests, tokens are the flattened tokens of all rows, in row order and
without gaps. Padding rows have length 0 and come last; padding tokens come last.
"""

import typing
from typing import Any

from flax import struct
from jaxtyping import Array, Int


@struct.dataclass
@typing.no_type_check  # leaves may be tracers, shapes or shardings
class StepInputs:
    """What one step runs, padded to its bucket (letters: docs/notation.md).

    Attributes:
      token_ids: ids to run; padding is 0.
      positions: index of each token in its own sequence, from 0; padding is 0.
      slot_mapping: where each token's keys and values go, block id * block size +
        offset; padding is one past the last slot, which a write drops. Never -1:
        a JAX index of -1 writes the last slot.
      query_start_loc: first token of each row; the last entry and the entries of
        padding rows are the number of real tokens.
      seq_lens: tokens of each row after this step; 0 for padding rows.
      block_tables: block ids of each row in sequence order; padding is block 0.
      logits_indices: for each row the token whose hidden state is wanted.
      attention_metadata: what the attention backend prepared, once for all layers.
      single_token_rows: static; true when every row runs exactly one token, so
        that token i belongs to row i and T equals R.
    """

    token_ids: Int[Array, " T"]
    positions: Int[Array, " T"]
    slot_mapping: Int[Array, " T"]
    query_start_loc: Int[Array, " R+1"]
    seq_lens: Int[Array, " R"]
    block_tables: Int[Array, "R P"]
    logits_indices: Int[Array, " R"]
    attention_metadata: Any = None
    single_token_rows: bool = struct.field(pytree_node=False, default=False)
