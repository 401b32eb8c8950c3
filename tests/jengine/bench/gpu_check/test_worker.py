import sys
import types

import pytest

from jengine.bench.gpu_check.driver import EXIT_DEVICE_LOST
from jengine.bench.gpu_check.events import read_events
from jengine.bench.gpu_check.worker import device_is_alive, main


@pytest.fixture
def run_worker(tmp_path, monkeypatch):
    """Runs a function as a part; returns the exit status and the events."""

    def run(function, *arguments, **functions):
        module = types.ModuleType("some_part")
        vars(module).update({"run": function, **functions})
        monkeypatch.setitem(sys.modules, "some_part", module)
        lines = tmp_path / "lines.jsonl"
        status = main(
            ["--module=some_part", f"--lines={lines}", "--seconds=50", *arguments]
        )
        return status, read_events(lines.read_text())

    return run


def test_it_hands_its_arguments_to_the_part(run_worker):
    def run(recorder):
        recorder.measure("a", pytest.fail)
        fields = {"smoke": recorder.smoke, "serial": recorder.serial}
        recorder.measure("b", lambda: fields | {"left_s": recorder.left_s})

    status, events = run_worker(run, "--smoke", "--serial", "--done=a")
    assert status == 0
    (end,) = (event for event in events if event["event"] == "end")
    assert (end["smoke"], end["serial"]) == (True, True)
    assert 0 < end["left_s"] <= 50


def test_it_adds_to_what_other_processes_wrote(run_worker):
    run_worker(lambda recorder: recorder.measure("a", dict))
    _, events = run_worker(lambda recorder: recorder.measure("b", dict))
    assert [event["case"] for event in events] == ["a", "a", "b", "b"]


def test_it_ends_with_the_device(run_worker, capsys):
    status, events = run_worker(
        lambda recorder: recorder.measure("a", lambda: 1 / 0), is_alive=lambda: False
    )
    assert status == EXIT_DEVICE_LOST
    assert events[-1]["status"] == "failed"
    assert "lost" in capsys.readouterr().err


def test_a_device_that_adds_is_alive():
    assert device_is_alive()
