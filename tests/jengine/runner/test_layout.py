import pytest

from jengine.runner.bucket import StepBucket
from jengine.runner.layout import SamplingColumn, forward_layout


@pytest.mark.parametrize(
    "bucket", [StepBucket(True, 4, 4, 3), StepBucket(False, 16, 2, 5)]
)
def test_sections_lie_one_after_another_without_gaps(bucket):
    layout = forward_layout(bucket)
    *sections, size = layout
    lengths = [section.stop - section.start for section in sections]
    rows = bucket.rows
    assert lengths == [bucket.tokens, rows + 1, rows, rows, rows * bucket.table_width]
    ends = [section.stop for section in sections]
    assert [section.start for section in sections] == [0, *ends[:-1]]
    assert size == ends[-1]


def test_the_floats_of_a_sampling_row_come_last():
    assert list(SamplingColumn) == list(range(12))
    names = [column.name for column in SamplingColumn]
    assert names[6:9] == ["TEMPERATURE", "TOP_P", "MIN_P"]
