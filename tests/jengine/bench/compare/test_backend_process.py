import os
import subprocess
import sys
import time

import psutil
import pytest

from jengine.bench.compare.backend_process import (
    BackendError,
    BackendProcess,
    Launch,
    find_engine,
    known,
)


@pytest.fixture
def start(engines, tmp_path):
    started = []

    def start(backend, python=sys.executable):
        launch = Launch(
            backend=backend,
            engine_file=find_engine(backend),
            python=python,
            threads=1,
            environment=dict(os.environ),
        )
        started.append(BackendProcess(launch, tmp_path / f"{backend}.log"))
        return started[-1]

    yield start
    for process in started:
        process.close()


def wait_until(holds):
    """A signal takes a moment."""
    for _ in range(12_000):
        if holds():
            return
        time.sleep(0.01)
    pytest.fail("not in two minutes")


def test_it_answers_and_stands_still_in_between(start):
    process = start("doubling")
    assert process.ask({}, 60.0)["version"] == "2.0"
    pid = process._process.pid
    wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    answer = process.ask({"prompts": [[4]], "output_tokens": 3}, 60.0)
    assert answer["token_ids"] == [[8, 8, 8]]
    assert process.peak_rss_bytes() > 2**20
    process.close()
    assert not psutil.pid_exists(pid)


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ("missing", "ModuleNotFoundError: No module named 'a_module_that_nobody_has'"),
        ("dying", "it ended with 7; its log ends: about to die"),
    ],
)
def test_a_failure_says_why(start, backend, message):
    with pytest.raises(BackendError, match=message):
        start(backend).ask({}, 60.0)


def test_patience_ends(start):
    with pytest.raises(BackendError, match="no answer in 0 s"):
        start("sleeping").ask({}, 0.1)


def test_an_interpreter_that_is_not_there(start):
    with pytest.raises(BackendError, match="no/python: No such file or directory"):
        start("doubling", python="no/python")


def test_engines_are_known_by_their_files():
    assert known() == ["jengine", "llama-cpp", "transformers", "vllm"]
    assert find_engine("llama-cpp").is_file()
    with pytest.raises(BackendError, match="'sglang' is unknown; known: jengine, "):
        find_engine("sglang")
    assert find_engine("vllm@eager") == find_engine("vllm")


DYING_PARENT = """
import os, pathlib, sys
from jengine.bench.compare.backend_process import BackendProcess, Launch
launch = Launch(backend="doubling", engine_file=pathlib.Path(sys.argv[1]),
                python=sys.executable, threads=1, environment=dict(os.environ))
process = BackendProcess(launch, pathlib.Path(sys.argv[2]))
process.ask({}, 60.0)
print(process._process.pid, flush=True)
os._exit(1)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends it by itself")
def test_it_does_not_outlive_a_parent_that_is_killed(engines, tmp_path):
    arguments = [str(find_engine("doubling")), str(tmp_path / "log")]
    done = subprocess.run(
        [sys.executable, "-c", DYING_PARENT, *arguments],
        stdout=subprocess.PIPE,
        check=False,
    )
    pid = int(done.stdout)
    gone = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    wait_until(
        lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() in gone
    )
