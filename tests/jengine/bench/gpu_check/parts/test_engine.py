import pytest

from jengine.bench.gpu_check.parts.engine import (
    BENCHES,
    SMOKE,
    program_keys,
    summarise_host,
)
from jengine.runner.program_keys import DecodeKey, ForwardKey, SampleKey
from jengine.runner.sample import SampleMode


@pytest.mark.parametrize("bench", [*BENCHES, *SMOKE], ids=lambda bench: bench.name)
def test_every_load_fits_its_engine(bench):
    size = bench.size
    for load in bench.loads:
        longest = load.prompt + load.max_tokens(bench.token_budget)
        assert longest <= size.max_model_len
        assert load.batch in size.rows
        blocks = load.batch * -(-longest // size.block_size)
        assert blocks < size.num_blocks
    assert size.rows[-1] <= size.token_budget


def test_all_batches_are_there():
    for bench in BENCHES:
        assert {load.batch for load in bench.loads} == {1, 8, 64, 256}


def test_a_load_compiles_its_decode_step_the_mixed_one_and_samplers():
    size = BENCHES[0].size
    keys = program_keys(size, 8)
    decode, mixed, *samplers = keys
    assert isinstance(decode, DecodeKey)
    assert decode.bucket[:3] == (True, 8, 8)
    assert isinstance(mixed, ForwardKey)
    assert mixed.bucket[:3] == (False, 8192, 256)
    assert decode.bucket.table_width == mixed.bucket.table_width == 96
    assert samplers == [SampleKey(rows, SampleMode()) for rows in (1, 8)]


def test_what_is_not_known_is_not_said():
    fields = {"seconds": 0.004, "host_gap_s": None}
    assert summarise_host(fields) == ", step 4.00 ms"
    fields = {"seconds": 0.004, "host_gap_s": 5e-5, "launches_per_step": 330.0}
    assert summarise_host(fields) == ", step 4.00 ms, 50 us of it idle, 330 launches"
