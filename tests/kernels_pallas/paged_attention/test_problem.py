"""Sizes that follow from others."""

import pytest

from kernels_pallas.paged_attention.problem import Problem
from kernels_pallas.paged_attention.tiling import Tile


@pytest.mark.parametrize(
    ("head_dim", "group", "width", "queries"),
    [(64, 4, 64, 8), (80, 7, 128, 4), (256, 32, 256, 1), (96, 1, 128, 32)],
)
def test_a_program_holds_powers_of_2(head_dim, group, width, queries):
    problem = Problem(
        tile=Tile(32, 64),
        scale=1.0,
        group=group,
        block_size=16,
        head_dim=head_dim,
        num_tokens=8,
    )
    assert (problem.width, problem.queries) == (width, queries)
