import pytest

from jengine.bench.sweep import best_point, format_sweep, run_sweep
from jengine.bench.throughput import ThroughputResult


def measure(options):
    if options["seqs"] == 3:
        raise ValueError("too many")
    return ThroughputResult(
        elapsed_time=2.0,
        num_requests=4,
        prompt_tokens=10,
        output_tokens=10 * options["seqs"],
        computed_tokens=10,
    )


@pytest.fixture
def points():
    return run_sweep({"seqs": [1, 2, 3], "fast": [True]}, measure)


def test_all_points_are_measured_and_failures_kept(points):
    assert [dict(point.options) for point in points] == [
        {"seqs": 1, "fast": True},
        {"seqs": 2, "fast": True},
        {"seqs": 3, "fast": True},
    ]
    assert points[2].error == "ValueError: too many"
    assert best_point(points) is points[1]
    assert best_point(points[2:]) is None
    assert points[2].to_dict()["result"] is None
    assert points[0].to_dict()["result"]["output_tokens_per_second"] == 5.0


def test_the_table(points):
    assert format_sweep(points) == (
        "seqs  fast   req/s  tok/s  output tok/s\n"
        "----  ----  ------  -----  ------------  ----\n"
        "1     True    2.00  10.00          5.00\n"
        "2     True    2.00  15.00         10.00  best\n"
        "3     True  failed      -             -\n"
    )
    assert format_sweep([]).startswith("req/s")


def test_points_are_told_as_they_come():
    seen = []
    run_sweep({"seqs": [2, 1]}, measure, seen.append)
    assert [point.options["seqs"] for point in seen] == [2, 1]
