"""Attention of one layer, over and over: each call's queries are the last one's output.

Calls take turns over several sets of blocks, several times the card's largest cache
together, since in an engine each layer comes to keys that no cache holds any more.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jengine.aot.cost import Work
from jengine.bench.gpu_check.arithmetic import Heads, attention_work
from jengine.bench.gpu_check.target import Target
from kernels_pallas.paged_attention import (
    Tiling,
    attention_metadata,
    paged_attention,
    pallas_attention,
)

_MOST_CALLS = 64
_DTYPE = jnp.dtype(jnp.bfloat16)


class ChainShape(NamedTuple):
    """Rows of equal length, all with equally many queries.

    Attributes:
      rows: of the step.
      context: tokens of each row, the step's own included.
      queries: of each row.
      heads: of the layer.
      block_size: tokens of a block.
    """

    rows: int
    context: int
    queries: int
    heads: Heads
    block_size: int = 16

    @property
    def work(self) -> Work:
        """What one call takes."""
        before = self.context - self.queries
        rows = [(before, self.queries)] * self.rows
        return attention_work(self.heads, rows, itemsize=_DTYPE.itemsize)

    @property
    def num_blocks(self) -> int:
        """Blocks that one call reads."""
        return self.rows * -(-self.context // self.block_size)

    def num_calls(self, cache_bytes: int) -> int:
        """Return over how many sets of blocks calls should take turns.

        Args:
          cache_bytes: to be read between two reads of the same block.
        """
        return min(_MOST_CALLS, max(2, math.ceil(cache_bytes / self.work.bytes_moved)))


class ChainArrays(NamedTuple):
    """What a chain of calls reads, on the device; queries [T, H, D] come besides.

    Attributes:
      keys: [N, K, B, D].
      values: [N, K, B, D].
      tables: [R, P] of each call.
      query_start_loc: [R+1].
      seq_lens: [R].
    """

    keys: jax.Array
    values: jax.Array
    tables: tuple[jax.Array, ...]
    query_start_loc: jax.Array
    seq_lens: jax.Array


def make_chain_arrays(
    shape: ChainShape, target: Target, num_calls: int
) -> tuple[jax.Array, ChainArrays]:
    """Return random queries, and a cache whose blocks lie in random order."""
    blocks = 1 + np.random.default_rng(0).permutation(num_calls * shape.num_blocks)
    tables = blocks.reshape(num_calls, shape.rows, -1).astype(np.int32)
    heads = shape.heads
    cache = (len(blocks) + 1, heads.num_kv_heads, shape.block_size, heads.head_dim)
    keys = jax.random.split(jax.random.key(0, impl="rbg"), 3)
    starts = np.arange(shape.rows + 1, dtype=np.int32) * shape.queries
    with jax.default_device(target.device):
        queries, k, v = (
            jax.random.uniform(key, size, _DTYPE, minval=-1.0, maxval=1.0)
            for key, size in zip(
                keys,
                ((shape.rows * shape.queries, *heads[::2]), cache, cache),
                strict=True,
            )
        )
        return queries, ChainArrays(
            k,
            v,
            tuple(jnp.asarray(table) for table in tables),
            jnp.asarray(starts),
            jnp.full(shape.rows, shape.context, jnp.int32),
        )


def pallas_chain(
    shape: ChainShape, tiling: Tiling, *, interpret: bool
) -> Callable[[jax.Array, ChainArrays], jax.Array]:
    """Return a function that calls the Pallas kernel once for each table."""
    single = shape.queries == 1

    def run(queries: jax.Array, arrays: ChainArrays) -> jax.Array:
        # Once, as in a step, whose layers all use it.
        metadata = attention_metadata(
            arrays.query_start_loc,
            num_tokens=queries.shape[0],
            group=shape.heads.group,
            tiling=tiling,
            single_token_rows=single,
        )

        def attend(queries: jax.Array, table: jax.Array) -> Any:
            return pallas_attention(
                queries,
                arrays.keys,
                arrays.values,
                table,
                arrays.query_start_loc,
                arrays.seq_lens,
                metadata,
                scale=shape.heads.head_dim**-0.5,
                tiling=tiling,
                single_token_rows=single,
                interpret=interpret,
            )

        for table in arrays.tables:
            queries = attend(queries, table)
        return queries

    return run


def xla_chain(shape: ChainShape) -> Callable[[jax.Array, ChainArrays], jax.Array]:
    """Return a function that calls attention in plain XLA once for each table."""

    def run(queries: jax.Array, arrays: ChainArrays) -> jax.Array:
        for table in arrays.tables:
            queries = paged_attention(
                queries,
                arrays.keys,
                arrays.values,
                table,
                arrays.query_start_loc,
                arrays.seq_lens,
                scale=shape.heads.head_dim**-0.5,
                single_token_rows=shape.queries == 1,
            )
        return queries

    return run
