import json

import pytest

from jengine.bench.gpu_check.report import SCHEMA, Report, status_of


def test_the_file_is_whole_after_each_change(tmp_path):
    path = tmp_path / "results.json"
    report = Report(path, minutes=6.0)
    assert json.loads(path.read_text()) == {
        "schema": SCHEMA,
        "minutes": 6.0,
        "parts": [],
    }
    report.set_part("a", status="running", cases=[], reason=None)
    report.set_part("b", status="ok", cases=[{"case": "x", "status": "ok"}])
    report.set_part("a", status="ok", cases=[], reason="late")
    report.set_head(elapsed_s=3.0)
    found = json.loads(path.read_text())
    assert found["elapsed_s"] == 3.0
    assert found["parts"] == report.parts
    assert [part["name"] for part in found["parts"]] == ["a", "b"]
    assert found["parts"][0] == {
        "name": "a",
        "status": "ok",
        "reason": "late",
        "cases": [],
    }
    assert [entry.name for entry in tmp_path.iterdir()] == ["results.json"]


def test_a_file_that_cannot_be_written_is_known_at_once(tmp_path):
    with pytest.raises(OSError):  # noqa: PT011 - whichever the system gives
        Report(tmp_path / "nowhere" / "results.json")


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        (["ok", "skipped"], "ok"),
        (["ok", "failed", "skipped"], "failed"),
        (["failed", "crashed", "ok"], "crashed"),
        (["skipped"], "skipped"),
        ([], "skipped"),
    ],
)
def test_a_part_is_as_bad_as_its_worst_case(tmp_path, statuses, expected):
    cases = [{"case": str(i), "status": status} for i, status in enumerate(statuses)]
    assert status_of(cases) == expected
    report = Report(tmp_path / "results.json")
    report.set_part("a", status="timed out", cases=cases)
    assert report.has_failed == (expected in ("failed", "crashed"))
