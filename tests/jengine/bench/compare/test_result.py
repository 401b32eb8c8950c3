import json

import pytest

from jengine.bench.compare.result import (
    BackendResult,
    Sample,
    ratio_to_best_other,
    share_of_same_tokens,
)


def result(backend, *rates, batch=1, foreign=0.0, **fields):
    samples = tuple(Sample(tokens_per_s=r, foreign_cpus=foreign) for r in rates)
    return BackendResult(
        backend=backend,
        batch=batch,
        prompt_tokens=80,
        output_tokens=64,
        samples=samples,
        max_foreign_cpus=0.1,
        **fields,
    )


def test_median_and_ratio():
    results = [
        result("a", 30.0, 10.0, 20.0),
        result("b", 5.0, 15.0),
        result("c", 8.0),
        result("a", 1.0, batch=2),
        result("d"),
    ]
    assert [r.median for r in results] == [20.0, 10.0, 8.0, 1.0, None]
    assert ratio_to_best_other(results, "a", 1) == 2.0
    assert ratio_to_best_other(results, "c", 1) == 0.4
    assert ratio_to_best_other(results, "d", 1) is None
    assert ratio_to_best_other(results, "a", 2) is None


def test_disturbed_by_more_than_the_limit():
    assert result("a", 1.0, foreign=0.11).is_disturbed
    assert not result("a", 1.0, foreign=0.1).is_disturbed
    assert not result("a").is_disturbed


def test_json_has_what_readers_of_comparisons_expect():
    plain = result("a", 1.5, 2.5, version="9", versions=(("jax", "1"),)).to_dict()
    assert json.loads(json.dumps(plain)) == {
        "backend": "a",
        "version": "9",
        "batch": 1,
        "prompt_tokens": 80,
        "output_tokens": 64,
        "output_tokens_per_s": [1.5, 2.5],
        "foreign_cpus": [0.0, 0.0],
        "rejected": [],
        "init_s": None,
        "first_token_s": None,
        "start_foreign_cpus": None,
        "peak_rss_bytes": None,
        "same_tokens": None,
        "versions": {"jax": "1"},
        "max_foreign_cpus": 0.1,
        "error": None,
    }


@pytest.mark.parametrize(
    ("found", "share"),
    [
        ([[1, 2, 3, 4], [5, 6, 7, 8]], 1.0),
        ([[1, 2, 9, 4], [5, 6, 7, 8]], 6 / 8),  # what follows a difference is moot
        ([[9, 2, 3, 4], [9, 6, 7, 8]], 0.0),
    ],
)
def test_share_of_same_tokens(found, share):
    assert share_of_same_tokens(found, [[1, 2, 3, 4], [5, 6, 7, 8]]) == share
