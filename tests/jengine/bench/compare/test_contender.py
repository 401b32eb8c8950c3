import os
import sys

import pytest

from jengine.bench.compare import contender
from jengine.bench.compare.backend_process import BackendError, Launch, find_engine
from jengine.bench.compare.contender import Contender, wait_for_quiet
from jengine.bench.compare.cpu_load import CpuTimes


@pytest.fixture
def start(engines, tmp_path):
    started = []

    def start(backend):
        launch = Launch(
            backend=backend,
            engine_file=find_engine(backend),
            python=sys.executable,
            threads=1,
            environment=dict(os.environ),
        )
        one = Contender(backend)
        started.append(one)
        one.start(launch, {}, [1, 2], log=tmp_path / "log", timeout_s=60.0)
        return one

    yield start
    for one in started:
        one.close()


def test_a_start_and_a_call(start):
    one = start("doubling")
    assert one.is_running
    assert one.error is None
    assert one.about["version"] == "2.0"
    assert 0 < one.about["init_s"] <= one.about["first_token_s"]
    assert one.about["start_foreign_cpus"] >= 0
    call = one.call([[3], [4]], 2, 60.0)
    assert call.token_ids == [[6, 6], [8, 8]]
    assert call.sample.tokens_per_s > 0
    assert one.peak_rss_bytes > 0
    one.close()
    assert not one.is_running
    assert one.peak_rss_bytes is None


def test_a_start_that_fails(start):
    one = start("missing")
    assert not one.is_running
    assert one.error == (
        "ModuleNotFoundError: No module named 'a_module_that_nobody_has'"
    )


def test_outputs_of_another_length_count_as_failure(start):
    one = start("short")
    with pytest.raises(BackendError, match=r"2 outputs of \[1\] tokens; expected 2"):
        one.call([[3], [4]], 2, 60.0)


def test_waiting_ends_when_others_do(monkeypatch):
    readings = [CpuTimes(0, 0, 0), CpuTimes(1, 2, 0), CpuTimes(1, 2, 0)]
    readings += [CpuTimes(2, 2.01, 0), CpuTimes(9, 9, 9)]
    monkeypatch.setattr(contender, "read_cpu_times", lambda: readings.pop(0))
    monkeypatch.setattr(contender.time, "sleep", lambda _: None)
    wait_for_quiet(0.1, 1000.0)
    assert len(readings) == 1  # busy at first, then quiet
    wait_for_quiet(0.1, 0.0)  # no time to look
