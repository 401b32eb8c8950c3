"""The table covers what models have, and says where it comes from."""

import itertools

import pytest

from kernels_pallas.paged_attention.tuning_table import TABLE

DTYPES = ("bfloat16", "float16", "float32", "int8", "float8_e4m3fn", "float8_e5m2")


@pytest.mark.parametrize("launch", ["decode", "prefill"])
@pytest.mark.parametrize("capability", [80, 89, 90])
def test_every_size_of_a_model_has_a_tile(launch, capability):
    sizes = itertools.product((16, 64, 80, 96, 128, 192, 256), (1, 4, 7, 32), DTYPES)
    for head_dim, group, dtype in sizes:
        entries = [
            entry
            for entry in TABLE
            if entry.launch == launch
            and entry.fits(
                capability=capability,
                head_dim=head_dim,
                group=group,
                dtype=dtype,
                num_tokens=8192,
            )
        ]
        assert entries, (head_dim, group, dtype)


def test_every_entry_says_how_it_was_found():
    assert all(entry.provenance for entry in TABLE)


def test_an_entry_fits_up_to_its_limits():
    entry = TABLE[0]
    sizes = {
        "capability": 90,
        "head_dim": entry.max_head_dim,
        "group": 4,
        "dtype": entry.dtypes[0],
        "num_tokens": 1,
    }
    assert entry.fits(**sizes)
    assert not entry.fits(**sizes | {"head_dim": entry.max_head_dim + 1})
    assert not entry.fits(**sizes | {"dtype": "complex64"})
    assert not entry.fits(**sizes | {"capability": 75})
