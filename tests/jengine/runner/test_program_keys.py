import pytest

from jengine.runner.bucket import make_buckets
from jengine.runner.program_keys import (
    DecodeKey,
    ForwardKey,
    SampleKey,
    all_keys,
    program_name,
    sample_modes,
)
from jengine.runner.sample import SampleMode

BUCKETS = make_buckets(max_num_seqs=3, token_budget=64, max_blocks=512)


@pytest.fixture(scope="module")
def keys():
    return all_keys(BUCKETS, 7)


def test_every_bucket_and_every_mode_has_its_program(keys):
    steps = BUCKETS.steps()
    singles = [bucket for bucket in steps if bucket.single_token_rows]
    plain = (SampleMode(), SampleMode(random=True))
    assert len(keys) == len(set(keys))
    assert {key for key in keys if isinstance(key, DecodeKey)} == {
        DecodeKey(bucket, mode) for bucket in singles for mode in plain
    }
    assert {key for key in keys if isinstance(key, ForwardKey)} == set(
        map(ForwardKey, steps)
    )
    assert {key for key in keys if isinstance(key, SampleKey)} == {
        SampleKey(rows, mode) for rows in BUCKETS.rows for mode in sample_modes(7)
    }


def test_plain_decoding_comes_first(keys):
    assert isinstance(keys[0], DecodeKey)
    assert keys[0].mode == SampleMode()


def test_modes_draw_filter_mask_and_report():
    modes = sample_modes(7)
    assert len(modes) == len(set(modes)) == 15
    assert [mode.listed for mode in modes].count(True) == 1
    assert {mode.num_logprobs for mode in modes} == {None, 7}
    assert not any(mode.filtered and not mode.random for mode in modes)


def test_names_tell_programs_apart_and_suit_a_file(keys):
    names = [program_name(key) for key in keys]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() for name in names)
