"""The choice of tiles."""

import jax.numpy as jnp
import pytest

from kernels_pallas.paged_attention import Tile, tiling_for
from kernels_pallas.paged_attention.tuning import capability_of, splits_for, stand_in
from kernels_pallas.paged_attention.tuning_table import TABLE, Entry

LLAMA = {
    "head_dim": 128,
    "group": 4,
    "dtype": jnp.bfloat16,
    "num_tokens": 2048,
    "num_rows": 64,
    "num_kv_heads": 8,
    "num_sms": 132,
}


@pytest.mark.parametrize(
    ("architecture", "prefill"),
    [
        ("sm_90", Tile(128, 64, 1, 8, 5)),
        ("sm_90a", Tile(128, 64, 1, 8, 5)),
        ("sm_80", Tile(128, 32, 1, 8, 5)),
    ],
)
def test_the_tiles_of_an_8b_llama(architecture, prefill):
    tiling = tiling_for(architecture=architecture, **LLAMA)
    assert tiling.prefill == prefill
    assert tiling.decode == Tile(16, 64, 1, 4, 5)


@pytest.mark.parametrize(
    ("rows", "kv_heads", "sms", "splits"),
    [
        (1, 8, 132, 32),
        (1, 1, 132, 32),
        (4, 8, 132, 8),
        (8, 8, 132, 4),
        (8, 8, 108, 2),
        (16, 8, 132, 2),
        (32, 8, 132, 1),
        (64, 1, 132, 4),
        (256, 8, 132, 1),
    ],
)
def test_keys_are_divided_until_the_device_is_full(rows, kv_heads, sms, splits):
    found = splits_for(num_rows=rows, num_kv_heads=kv_heads, num_sms=sms)
    assert found == splits
    tiling = tiling_for(
        architecture="sm_90",
        **LLAMA | {"num_rows": rows, "num_kv_heads": kv_heads, "num_sms": sms},
    )
    assert tiling.decode.num_splits == splits


@pytest.mark.parametrize(
    ("group", "decode", "prefill"), [(7, 16, 128), (48, 64, 128), (130, 256, 256)]
)
def test_tiles_grow_with_the_group(group, decode, prefill):
    tiling = tiling_for(architecture="sm_90", **LLAMA | {"group": group})
    assert (tiling.decode.rows, tiling.prefill.rows) == (decode, prefill)


def test_steps_of_few_tokens_have_smaller_tiles():
    few = tiling_for(architecture="sm_90", **LLAMA | {"num_tokens": 128})
    many = tiling_for(architecture="sm_90", **LLAMA | {"num_tokens": 129})
    assert few.prefill.rows < many.prefill.rows


def test_a_table_can_be_given():
    mine = Entry(
        launch="decode",
        architectures=("sm_90",),
        dtypes=("bfloat16",),
        max_head_dim=128,
        max_group=4,
        max_tokens=16,
        tile=Tile(16, 128, num_warps=2, num_stages=3),
        provenance="timed",
    )
    table = (mine, *TABLE)

    def decode(**changes):
        sizes = LLAMA | {"num_tokens": 16} | changes
        return tiling_for(architecture="sm_90", table=table, **sizes).decode

    assert decode().keys == 128
    for other in ({"num_tokens": 17}, {"group": 5}, {"dtype": jnp.int8}):
        assert decode(**other).keys == 64


def test_e4m3_needs_ada():
    sizes = LLAMA | {"dtype": jnp.float8_e4m3fn}
    with pytest.raises(ValueError, match="float8_e4m3fn needs sm_89 or newer"):
        tiling_for(architecture="sm_80", **sizes)
    tiling_for(architecture="sm_89", **sizes)
    tiling_for(architecture="sm_80", **sizes | {"dtype": jnp.float8_e5m2})


def test_sizes_that_no_entry_covers():
    with pytest.raises(ValueError, match="no decode tile for sm_90, 512 features"):
        tiling_for(architecture="sm_90", **LLAMA | {"head_dim": 512})


@pytest.mark.parametrize("architecture", ["sm_80", "sm_89", "sm_90"])
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.int8, jnp.float8_e5m2])
def test_wide_heads_come_in_groups_of_64_at_most(architecture, dtype):
    wide = LLAMA | {"head_dim": 256, "dtype": dtype}
    tiling_for(architecture=architecture, **wide | {"group": 64})
    with pytest.raises(ValueError, match="256 features, 65 query heads"):
        tiling_for(architecture=architecture, **wide | {"group": 65})


@pytest.mark.parametrize("name", ["90", "sm_", "gfx942", "sm_x"])
def test_names_that_are_no_architecture(name):
    with pytest.raises(ValueError, match="architecture is"):
        capability_of(name)


def test_devices_that_are_too_old():
    with pytest.raises(
        ValueError, match=r"sm_75 is too old .* attention_backend='xla'"
    ):
        capability_of("sm_75")


def test_devices_without_entries_use_those_of_another():
    assert [stand_in(c, TABLE) for c in (80, 86, 89, 90, 100, 120, 999)] == [
        80,
        89,
        89,
        90,
        90,
        89,
        89,
    ]
    for architecture in ("sm_86", "sm_100", "sm_120", "sm_121"):
        tiling_for(architecture=architecture, **LLAMA)
