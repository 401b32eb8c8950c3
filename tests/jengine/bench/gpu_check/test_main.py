"""The whole check on a CPU: every part, in its own process, on tiny shapes."""

import importlib.util
import json
import subprocess
import sys

import pytest

from jengine.bench.gpu_check.part import PARTS

HAS_TORCH = importlib.util.find_spec("torch") is not None
TIMING = {"seconds", "fastest_s", "slowest_s", "samples", "calls_per_sample"}
# What records of a part have at least; those of several kinds have what they share.
FIELDS = {
    "kernel": {"summary"},
    "parity": {"summary"},
    "bandwidth": TIMING,
    "transformers": {*TIMING, "tokens_per_s", "torch"},
    "flags-default": {*TIMING, "first_step_s", "tokens_per_s"},
    "flags-more-graphs": {*TIMING, "first_step_s", "tokens_per_s"},
    "tuning": {"summary"},
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The results of a smoke test, and what it printed."""
    path = tmp_path_factory.mktemp("smoke") / "found.json"
    command = [sys.executable, "-m", "jengine.bench.gpu_check", "--smoke"]
    # Its own limits are for cards; a machine that runs tests may take ten times that.
    done = subprocess.run(
        [*command, "--minutes=60", f"--json={path}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(path.read_text()), done.stdout


@pytest.mark.slow
def test_every_part_ran_and_nothing_failed(found):
    report, _ = found
    assert report["smoke"] is True
    statuses = {part["name"]: part["status"] for part in report["parts"]}
    wanted = {part.name: "ok" for part in PARTS if part.in_smoke} | {"device": "ok"}
    if not HAS_TORCH:
        wanted["transformers"] = "skipped"
    assert statuses == wanted
    for part in report["parts"]:
        assert part["processes"] == 1
        assert part["cases"]
        assert {case["status"] for case in part["cases"]} == {part["status"]}


@pytest.mark.slow
def test_every_record_has_its_fields(found):
    report, _ = found
    for part in report["parts"]:
        wanted = FIELDS.get(part["name"], set())
        if part["status"] == "skipped":
            wanted = {"reason"}
        for case in part["cases"]:
            assert wanted <= case.keys(), (part["name"], case["case"])


@pytest.mark.slow
def test_the_kernel_is_compared_in_numbers(found):
    report, _ = found
    (kernel,) = (part for part in report["parts"] if part["name"] == "kernel")
    for case in kernel["cases"]:
        if case["case"].startswith("write"):
            assert case["slots_wrong"] == 0
        else:
            assert 0 < case["relative_error"] < case["tolerance"]
            assert case["compile_s"] > 0


@pytest.mark.slow
def test_the_engine_is_measured_against_its_roofline(found):
    report, _ = found
    (engine,) = (part for part in report["parts"] if part["name"] == "engine")
    ceilings, load = engine["cases"]
    assert ceilings["copy_bytes_per_s"] > 0
    assert 0 < load["roofline_s"] < load["seconds"]
    assert load["share_of_roofline"] == pytest.approx(
        load["roofline_s"] / load["seconds"]
    )
    assert load["tokens_per_s"] == pytest.approx(2 / load["seconds"])
    assert "no kernels of a GPU" in load["profile"]


@pytest.mark.slow
def test_the_table_has_a_line_for_every_case(found):
    report, printed = found
    for part in report["parts"]:
        for case in part["cases"]:
            assert case["case"] in printed
    assert "Entry(launch='decode'" in printed
