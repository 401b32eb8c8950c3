"""The write of a step's keys and values into the cache, as one launch."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from kernels_pallas.paged_attention.merge import whole
from kernels_pallas.paged_attention.tiling import next_power_of_2

THREAD_BYTES = 16  # the widest load of a thread
WARP_THREADS = 32
MOST_WARPS = 8


def write_tokens(
    keys: jax.Array,
    values: jax.Array,
    new_keys: jax.Array,
    new_values: jax.Array,
    slot_mapping: jax.Array,
    *,
    interpret: bool,
) -> tuple[jax.Array, jax.Array]:
    """Write each token's keys and values to its slot; one program a token."""
    arrays = (slot_mapping, new_keys, new_values, keys, values)
    num_tokens, num_heads, head_dim = new_keys.shape
    return pl.pallas_call(
        write_kernel,
        out_shape=tuple(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (keys, values)),
        grid=(num_tokens,),
        in_specs=[whole(a) for a in arrays],
        out_specs=(whole(keys), whole(values)),
        input_output_aliases={3: 0, 4: 1},
        compiler_params=plt.CompilerParams(
            num_warps=warps_for(num_heads, head_dim, new_keys.dtype.itemsize),
            num_stages=1,
        ),
        interpret=interpret,
        name="paged_attention_write",
    )(*arrays)


def warps_for(num_heads: int, head_dim: int, itemsize: int) -> int:
    """Return how many warps move one token's heads in one load a thread."""
    size = next_power_of_2(num_heads) * next_power_of_2(head_dim) * itemsize
    return min(MOST_WARPS, max(1, size // (THREAD_BYTES * WARP_THREADS)))


def write_kernel(
    slots_ref: Any,  # [T]
    new_keys_ref: Any,  # [T, K, D]
    new_values_ref: Any,  # [T, K, D]
    _keys_ref: Any,  # [N, K, B, D], the same memory as the output
    _values_ref: Any,  # [N, K, B, D]
    keys_ref: Any,  # [N, K, B, D]
    values_ref: Any,  # [N, K, B, D]
) -> None:
    """Write one token, unless its slot is none of the cache's."""
    token = pl.program_id(0)
    slot = slots_ref[token]
    num_blocks, num_heads, block_size, head_dim = keys_ref.shape
    head = lax.broadcasted_iota(jnp.int32, (next_power_of_2(num_heads),), 0)[:, None]
    feature = lax.broadcasted_iota(jnp.int32, (next_power_of_2(head_dim),), 0)[None, :]
    mask = (head < num_heads) & (feature < head_dim)

    @pl.when((slot >= 0) & (slot < num_blocks * block_size))
    def _():
        block = lax.div(slot, jnp.int32(block_size))
        offset = lax.rem(slot, jnp.int32(block_size))
        pairs = ((new_keys_ref, keys_ref), (new_values_ref, values_ref))
        for new_ref, ref in pairs:
            other = jnp.zeros((), new_ref.dtype)
            new = plt.load(new_ref.at[token, head, feature], mask=mask, other=other)
            plt.store(
                ref.at[block, head, offset, feature], new.astype(ref.dtype), mask=mask
            )
