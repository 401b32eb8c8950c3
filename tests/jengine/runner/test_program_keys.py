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


def test_every_program_is_listed_once_and_has_its_own_name():
    buckets = make_buckets(max_num_seqs=8, token_budget=64, max_blocks=300)
    keys = all_keys(buckets, max_logprobs=5)
    assert len(set(keys)) == len(keys)
    assert len({program_name(key) for key in keys}) == len(keys)
    steps = buckets.steps()
    singles = [bucket for bucket in steps if bucket.single_token_rows]
    modes = sample_modes(5)
    plain = [SampleMode(), SampleMode(random=True)]
    expected = {
        *(ForwardKey(bucket) for bucket in steps),
        *(DecodeKey(bucket, mode) for bucket in singles for mode in plain),
        *(SampleKey(rows, mode) for rows in buckets.rows for mode in modes),
    }
    assert expected <= set(keys)
    assert all(isinstance(key, DecodeKey) for key in keys[: 2 * len(singles)])


def test_modes_filter_only_what_is_drawn():
    modes = sample_modes(5)
    assert len(set(modes)) == len(modes)
    assert {mode.num_logprobs for mode in modes} == {None, 5}
    assert all(mode.random for mode in modes if mode.filtered)
