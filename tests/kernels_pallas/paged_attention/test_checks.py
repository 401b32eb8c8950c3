"""What is refused, and what the message says."""

import jax
import jax.numpy as jnp
import pytest

from kernels_pallas.paged_attention import Tile, Tiling, checks
from kernels_pallas.paged_attention.metadata import max_tiles
from kernels_pallas.paged_attention.problem import Operands

TILING = Tiling(Tile(16, 32), Tile(32, 32))
T, R, H, K, D, N, B = 40, 6, 8, 2, 16, 9, 16


def array(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def operands(**changes):
    fitting = {
        "queries": array(T, H, D),
        "keys": array(N, K, B, D),
        "values": array(N, K, B, D),
        "block_tables": array(R, 4, dtype=jnp.int32),
        "query_start_loc": array(R + 1, dtype=jnp.int32),
        "seq_lens": array(R, dtype=jnp.int32),
        "tile_rows": array(max_tiles(T, R, 8), dtype=jnp.int32),
        "tile_tokens": array(max_tiles(T, R, 8), dtype=jnp.int32),
    }
    return Operands(**fitting | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"queries": array(T, 3, D)}, "3 query heads"),
        ({"queries": array(T, H, 8)}, "head dims are 8 and 16"),
        ({"values": array(N, K, B, 8)}, "keys are"),
        ({"seq_lens": array(2, dtype=jnp.int32)}, "seq_lens has 2 rows"),
        ({"query_start_loc": array(R, dtype=jnp.int32)}, "query_start_loc 6 entries"),
        ({"seq_lens": array(R, dtype=jnp.int16)}, "seq_lens is int16"),
        ({"block_tables": array(R, 4)}, "block_tables is float32"),
    ],
)
def test_shapes_that_do_not_fit(changes, message):
    with pytest.raises(ValueError, match=message):
        checks.check_shapes(*operands(**changes)[:6])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"queries": array(T, H, D, dtype=jnp.int32)}, "queries are int32; use one of"),
        ({"keys": array(N, K, B, D, dtype=jnp.float16)}, "keys are float16 and values"),
        (
            {n: array(N, K, B, D, dtype=jnp.int16) for n in ("keys", "values")},
            "keys are int16; use one of bfloat16",
        ),
        (
            {n: array(N, K, B, D, dtype=jnp.int8) for n in ("keys", "values")},
            "int8 keys and values need key_scales",
        ),
        ({"queries": array(T, 66, D)}, "33 query heads of a KV head do not fit in 16"),
        ({"tile_rows": array(3, dtype=jnp.int32)}, "metadata has 3 tiles; 40 tokens"),
    ],
)
def test_what_the_kernel_cannot_run(changes, message):
    with pytest.raises(ValueError, match=message):
        checks.check_kernel(operands(**changes), TILING, single_token_rows=False)


def test_what_fits_passes():
    checks.check_shapes(*operands()[:6])
    checks.check_kernel(operands(), TILING, single_token_rows=False)
    checks.check_soft_cap(None)
    checks.check_soft_cap(30.0)


def test_a_group_must_fit_in_the_prefill_tile_of_a_step_without_one_too():
    wide = Tiling(Tile(32, 32), Tile(16, 32))
    with pytest.raises(ValueError, match="do not fit in 16 rows"):
        checks.check_kernel(
            operands(queries=array(R, 64, D)), wide, single_token_rows=True
        )


@pytest.mark.parametrize(
    ("extras", "message"),
    [
        ((array(3), None, None), "sinks are .3,.; one for each of the 8"),
        ((None, array(N, K, B), None), "come together"),
        ((None, array(N, K, B), array(N, K)), "value_scales are .9, 2.; one a slot"),
    ],
)
def test_extras_that_do_not_fit(extras, message):
    given = operands()
    with pytest.raises(ValueError, match=message):
        checks.check_extras(given.queries, given.keys, *extras)


@pytest.mark.parametrize("soft_cap", [0.0, -1.0, float("nan")])
def test_caps_that_are_none(soft_cap):
    with pytest.raises(ValueError, match="soft_cap is"):
        checks.check_soft_cap(soft_cap)


BLOCK = 8 * 16 * 128  # bytes of a block of one-byte numbers


@pytest.mark.parametrize("dtype", [jnp.int8, jnp.float8_e4m3fn, jnp.float8_e5m2])
@pytest.mark.parametrize(
    ("size", "fits"),
    [
        (2 * 2**30, True),
        (2 * 2**30 + BLOCK, False),
        (4 * 2**30, False),
        (4 * 2**30 + BLOCK, True),
    ],
)
def test_pools_of_bytes_whose_offsets_overflow(dtype, size, fits):
    pool = array(size // BLOCK, 8, 16, 128, dtype=dtype)
    if fits:
        checks.check_pool_size(pool)
        return
    with pytest.raises(ValueError, match="at most 131072 blocks, or more than 262144"):
        checks.check_pool_size(pool)


def test_pools_of_wider_numbers_may_have_any_size():
    for gib in (1, 2, 3, 4, 5):
        pool = array(gib * 2**30 // BLOCK // 2, 8, 16, 128, dtype=jnp.bfloat16)
        checks.check_pool_size(pool)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"new_keys": array(T, K, 8)}, r"new_keys are .40, 2, 8.; .40, 2, 16. is"),
        ({"new_values": array(3, K, D)}, "new_values are"),
        ({"values": array(N, K, B, 8)}, "keys are float32"),
        ({"values": array(N, K, B, D, dtype=jnp.bfloat16)}, "values bfloat16"),
        ({"slot_mapping": array(T, dtype=jnp.int8)}, "slot_mapping is int8"),
    ],
)
def test_writes_that_do_not_fit(changes, message):
    fitting = {
        "keys": array(N, K, B, D),
        "values": array(N, K, B, D),
        "new_keys": array(T, K, D),
        "new_values": array(T, K, D),
        "slot_mapping": array(T, dtype=jnp.int32),
    }
    checks.check_write(**fitting)
    with pytest.raises(ValueError, match=message):
        checks.check_write(**fitting | changes)
