import pytest
from hypothesis import given
from hypothesis import strategies as st

from jengine.runner.bucket import StepBucket, make_buckets


def test_sizes_of_a_large_engine():
    buckets = make_buckets(max_num_seqs=256, token_budget=8192, max_blocks=2048)
    assert buckets.rows == (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
    assert buckets.tokens == (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
    assert buckets.table_widths == (128, 2048)


def test_sizes_in_between_waste_at_most_a_fifth_of_a_large_step():
    buckets = make_buckets(
        max_num_seqs=4, token_budget=2048, max_blocks=8, between=True
    )
    small, large = (16, 32, 64, 128, 192, 256, 384), (512, 640, 768, 896)
    larger = (1024, 1280, 1536, 1792, 2048)
    assert buckets.tokens == (*small, *large, *larger)
    odd = make_buckets(max_num_seqs=4, token_budget=300, max_blocks=8, between=True)
    assert odd.tokens == (16, 32, 64, 128, 192, 256, 300)


def test_sizes_of_a_tiny_engine():
    buckets = make_buckets(max_num_seqs=3, token_budget=5, max_blocks=2)
    assert (buckets.rows, buckets.tokens) == ((1, 2, 3), (16,))
    assert buckets.table_widths == (2,)
    assert buckets.max_rows == 3


def test_the_smallest_size_can_be_larger_than_a_row():
    sizes = {"token_budget": 16, "max_blocks": 8, "fewest_rows": 2}
    assert make_buckets(max_num_seqs=9, **sizes).rows == (2, 4, 8, 9)
    assert make_buckets(max_num_seqs=1, **sizes).rows == (1,)  # as there are seats


def test_more_rows_than_the_list_knows():
    rows = make_buckets(max_num_seqs=600, token_budget=600, max_blocks=1).rows
    assert rows[-3:] == (384, 512, 600)


@given(st.integers(1, 700), st.integers(0, 9000), st.integers(1, 3000), st.data())
def test_cor_04_every_step_within_the_limits_has_a_bucket(seqs, spare, blocks, data):
    budget = seqs + spare
    buckets = make_buckets(max_num_seqs=seqs, token_budget=budget, max_blocks=blocks)
    num_rows = data.draw(st.integers(1, seqs))
    num_tokens = data.draw(st.integers(num_rows, budget))
    longest = data.draw(st.integers(1, blocks))
    bucket = buckets.for_step(
        num_rows=num_rows, num_tokens=num_tokens, longest_table=longest
    )
    assert bucket in buckets.steps()
    assert bucket.single_token_rows == (num_rows == num_tokens)
    assert bucket.tokens >= num_tokens
    assert bucket.rows >= num_rows
    assert bucket.table_width >= longest
    assert num_rows <= buckets.for_sampling(num_rows) <= buckets.max_rows
    for sizes in (buckets.rows, buckets.tokens, buckets.table_widths):
        assert sorted(set(sizes)) == list(sizes)


def test_the_smallest_bucket_that_holds_is_chosen():
    buckets = make_buckets(max_num_seqs=64, token_budget=256, max_blocks=1024)
    step = buckets.for_step(num_rows=17, num_tokens=17, longest_table=128)
    assert step == StepBucket(True, 24, 24, 128)
    step = buckets.for_step(num_rows=17, num_tokens=65, longest_table=129)
    assert step == StepBucket(False, 128, 64, 1024)


@pytest.mark.parametrize(
    ("rows", "tokens", "width"), [(5, 5, 1), (1, 17, 1), (1, 1, 9)]
)
def test_a_step_beyond_the_limits_is_refused(rows, tokens, width):
    buckets = make_buckets(max_num_seqs=4, token_budget=16, max_blocks=8)
    with pytest.raises(ValueError, match="more than the largest bucket"):
        buckets.for_step(num_rows=rows, num_tokens=tokens, longest_table=width)
