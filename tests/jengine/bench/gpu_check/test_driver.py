"""The driver with parts that do nothing but succeed, fail, die and hang."""

import json
import os
import pathlib
import textwrap
import time

import pytest

import jengine
from jengine.bench.gpu_check.driver import MOST_PROCESSES, Driver
from jengine.bench.gpu_check.part import Part
from jengine.bench.gpu_check.report import Report

PARTS = {
    "good": """
        def run(recorder):
            recorder.measure("a", lambda: {"smoke": recorder.smoke})
            recorder.measure("b", lambda: {"left_s": recorder.left_s})
    """,
    "aborting": """
        import os

        def run(recorder):
            recorder.measure("a", dict)
            recorder.measure("b", os.abort)
            recorder.measure("c", lambda: {"serial": recorder.serial})
    """,
    "losing": """
        def is_alive():
            return False

        def run(recorder):
            recorder.measure("a", lambda: 1 / 0)
            recorder.measure("b", dict)
    """,
    "always_dying": """
        import os

        def run(recorder):
            for case in "abcdefgh":
                recorder.measure(case, os.abort)
    """,
    "hanging": """
        import subprocess

        def run(recorder):  # on a busy machine its time may be over at once
            hang = lambda: subprocess.run(["sleep", "3600"])
            recorder.measure("a", dict, least_s=-1000.0)
            recorder.measure("b", hang, least_s=-1000.0)
    """,
    "flagged": """
        import os

        def run(recorder):
            recorder.measure("a", lambda: {"flags": os.environ.get("XLA_FLAGS")})
    """,
}


@pytest.fixture
def run_part(tmp_path, monkeypatch):
    """Runs a part by the name of its module; returns it as the report has it."""
    root = pathlib.Path(jengine.__file__).parent.parent
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{root}")
    monkeypatch.setenv("XLA_FLAGS", "--inherited")
    for name, source in PARTS.items():
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(source))

    def run(name, *, limit_s=100.0, smoke=False, **options):
        report = Report(tmp_path / "results.json")
        driver = Driver(report, tmp_path, smoke=smoke, end=time.monotonic() + limit_s)
        part = Part(name=name, title=name, module=name, limit_s=limit_s, **options)
        driver.run([part])
        (found,) = json.loads((tmp_path / "results.json").read_text())["parts"]
        return found

    return run


def statuses(part):
    return {case["case"]: case["status"] for case in part["cases"]}


def test_what_a_part_measures_is_in_the_report(run_part):
    part = run_part("good", smoke=True)
    assert part["status"] == "ok"
    assert statuses(part) == {"a": "ok", "b": "ok"}
    assert part["cases"][0]["smoke"] is True
    assert 0 < part["cases"][1]["left_s"] < 100
    assert part["processes"] == 1
    assert not {"reason", "output", "xla_flags"} & part.keys()


def test_a_process_that_dies_takes_one_case_with_it(run_part):
    part = run_part("aborting")
    assert part["status"] == "crashed"
    assert statuses(part) == {"a": "ok", "b": "crashed", "c": "ok"}
    assert "-6" in part["cases"][1]["reason"]
    # The first process compiles ahead, so the second one has to show which case it is.
    assert part["processes"] == 3
    assert part["cases"][2]["serial"] is True


def test_a_lost_device_is_given_up_with_its_process(run_part):
    part = run_part("losing")
    assert statuses(part) == {"a": "failed", "b": "ok"}
    assert "ZeroDivisionError" in part["cases"][0]["reason"]
    assert (part["status"], part["processes"]) == ("failed", 2)


def test_a_part_that_only_dies_is_given_up(run_part):
    part = run_part("always_dying")
    assert part["processes"] == MOST_PROCESSES
    assert set(statuses(part).values()) == {"crashed"}
    assert part["status"] == "crashed"


def test_a_part_that_hangs_is_killed_with_its_children(run_part):
    part = run_part("hanging", limit_s=4.0, least_s=0.0)
    assert part["status"] == "timed out"
    assert part["reason"] == "still running at its time limit"
    assert statuses(part).get("b", "timed out") == "timed out"


def test_a_part_that_cannot_be_imported_says_so(run_part):
    part = run_part("missing_module")
    assert (part["status"], part["processes"]) == ("crashed", 1)
    assert "No module named 'missing_module'" in part["reason"]
    assert "Traceback" in part["output"]


@pytest.mark.parametrize("flags", [None, "", "--own"])
def test_flags_of_a_part_replace_those_that_are_set(run_part, flags):
    part = run_part("flagged", xla_flags=flags)
    expected = "--inherited" if flags is None else flags
    assert part["cases"][0]["flags"] == expected


def test_with_too_little_time_a_part_is_left_out(run_part):
    part = run_part("good", limit_s=5.0, least_s=60.0)
    assert (part["status"], part["cases"]) == ("skipped", [])
    assert part["reason"].endswith("s left of --minutes")
