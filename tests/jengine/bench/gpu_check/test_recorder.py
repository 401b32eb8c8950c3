import pytest

from jengine.bench.gpu_check.events import read_events
from jengine.bench.gpu_check.recorder import (
    CheckError,
    DeviceLostError,
    Recorder,
    SkipCaseError,
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def make(**options):
    lines = []
    recorder = Recorder(lines.append, **({"seconds": 10.0, "clock": Clock()} | options))
    return recorder, lambda: read_events("".join(lines))


def fail(error):
    def run():
        raise error

    return run


def test_a_case_is_written_down_before_it_runs_and_after():
    recorder, events = make()
    seen = []

    def run():
        seen.extend(events())
        return {"seconds": 2.0}

    assert recorder.measure("a", run) == {"seconds": 2.0}
    assert seen == [{"event": "start", "case": "a"}]
    assert events()[1:] == [
        {"event": "end", "case": "a", "status": "ok", "seconds": 2.0, "case_s": 0.0}
    ]


def test_a_failure_is_written_down_and_the_next_case_runs():
    recorder, events = make()
    assert recorder.measure("a", fail(ZeroDivisionError("by nothing"))) is None
    assert recorder.measure("b", dict) == {}
    failed, ok = (event for event in events() if event["event"] == "end")
    assert failed["status"] == "failed"
    assert failed["reason"] == "ZeroDivisionError: by nothing"
    assert "Traceback" in failed["traceback"]
    assert ok["status"] == "ok"


def test_a_wrong_result_keeps_its_numbers():
    recorder, events = make(is_alive=lambda: pytest.fail("nobody has to ask"))
    recorder.measure("a", fail(CheckError("too far", error=0.5)))
    assert events()[-1]["error"] == 0.5
    assert events()[-1]["status"] == "failed"
    assert "traceback" not in events()[-1]


def test_a_lost_device_ends_the_process_after_the_record():
    recorder, events = make(is_alive=lambda: False)
    with pytest.raises(DeviceLostError, match="since a"):
        recorder.measure("a", fail(RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS")))
    assert events()[-1]["status"] == "failed"


def test_what_cannot_run_here_is_skipped_with_the_reason():
    recorder, events = make()
    recorder.measure("a", fail(SkipCaseError("no such dtype")))
    last = events()[-1]
    assert (last["status"], last["reason"]) == ("skipped", "no such dtype")


def test_with_too_little_time_a_case_does_not_start():
    clock = Clock()
    recorder, events = make(clock=clock)
    clock.now = 7.0
    assert recorder.left_s == 3.0
    assert recorder.measure("a", pytest.fail, least_s=4.0) is None
    (event,) = events()
    assert event["status"] == "skipped"
    assert event["reason"] == "3 s left; it needs 4"


def test_what_an_earlier_process_did_is_not_done_again():
    recorder, events = make(done=["a"])
    assert recorder.measure("a", pytest.fail) is None
    recorder.skip("a", "whatever")
    assert events() == []
    assert recorder.is_done("a")
    assert not recorder.is_done("b")
