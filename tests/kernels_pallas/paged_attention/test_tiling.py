"""Tiles that Triton can compile, and no others."""

import pytest

from kernels_pallas.paged_attention.tiling import Tile, Tiling, next_power_of_2


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"rows": 8}, "rows is 8; use a power of 2, 16 or more"),
        ({"rows": 48}, "rows is 48"),
        ({"keys": 0}, "keys is 0"),
        ({"keys": 96}, "keys is 96"),
        ({"num_splits": 0}, "num_splits is 0"),
        ({"num_splits": 3}, "num_splits is 3"),
        ({"num_warps": 6}, "num_warps is 6"),
        ({"num_stages": 0}, "num_stages is 0; use 1 or more"),
    ],
)
def test_sizes_that_triton_cannot_compile(sizes, message):
    with pytest.raises(ValueError, match=message):
        Tile(**{"rows": 16, "keys": 64} | sizes)


def test_a_prefill_tile_has_no_splits():
    with pytest.raises(ValueError, match="prefill tile has 2 splits; use 1"):
        Tiling(Tile(16, 64, 2), Tile(64, 64, 2))


@pytest.mark.parametrize(("group", "queries"), [(1, 16), (3, 5), (16, 1)])
def test_a_tile_holds_whole_tokens(group, queries):
    assert Tile(16, 64).queries(group) == queries


def test_a_group_that_does_not_fit_names_a_tile_that_it_fits():
    with pytest.raises(ValueError, match=r"17 query heads .* use a tile of 32 or more"):
        Tile(16, 64).queries(17)


def test_tiles_are_values():
    assert Tile(16, 64) == Tile(16, 64)
    assert len({Tiling(Tile(16, 64), Tile(64, 64)) for _ in range(2)}) == 1


@pytest.mark.parametrize(
    ("number", "power"), [(1, 1), (2, 2), (3, 4), (16, 16), (80, 128), (129, 256)]
)
def test_next_power_of_2(number, power):
    assert next_power_of_2(number) == power
