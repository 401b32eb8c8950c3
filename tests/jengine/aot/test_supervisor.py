"""Workers that crash are started again, without what they crashed on."""

import json
import os
import sys

import pytest

from jengine.aot.facts import ProgramFacts
from jengine.aot.request import Job
from jengine.aot.supervisor import SurveyError, run_survey, worker_environment

FACTS = ProgramFacts(
    layers=0,
    compile_s=1.0,
    argument_bytes=1,
    output_bytes=1,
    temp_bytes=1,
    aliased_bytes=1,
    kv_copies=0,
    launches=1,
    launches_per_layer=None,
    collectives={},
    kernels=(),
).to_dict()

# A worker for four programs: 1 cannot be compiled, 2 aborts the process.
WORKER = f"""
import json, os, sys

def tell(event, **fields):
    print(json.dumps({{"event": event, **fields}}), flush=True)

request = json.loads(sys.stdin.readline())
with open({{log!r}}, "a") as log:
    log.write(json.dumps([request["only"], request["threads"]]) + "\\n")
only = request["only"]
todo = [[n, False] for n in range(4)] if only is None else only
tell("survey", name="it")
tell("jobs", jobs=todo)
for started in range(0, len(todo), 3):
    batch = todo[started : started + 3]
    for job in batch:
        tell("started", job=job)
    for job in batch:
        if job[0] == 2:
            print("LLVM ERROR: cannot select", file=sys.stderr, flush=True)
            os.abort()
        if job[0] == 1:
            tell("failed", job=job, message="too large")
        else:
            tell("done", job=job, facts={FACTS!r})
tell("end", cpu_s=1.5)
"""


@pytest.fixture
def start(make_request, tmp_path):
    """Runs a survey by a script, in place of the worker."""
    request = make_request()

    def run(script, **options):
        command = (sys.executable, "-c", script)
        return run_survey(request, {}, command=command, **options)

    return run


def test_every_program_is_done_although_the_worker_crashes(start, tmp_path):
    log = tmp_path / "log"
    seen = []
    found = start(
        WORKER.replace("{log!r}", repr(str(log))),
        progress=lambda f: seen.append(len(f.facts) + len(f.failures)),
    )
    assert set(found.facts) == {Job(0, False), Job(3, False)}
    assert found.failures == {
        Job(1, False): "too large",
        Job(2, False): "the compiler crashed: LLVM ERROR: cannot select",
    }
    assert found.survey == {"name": "it"}
    assert found.missing == []
    assert seen == [1, 2, 3, 4]
    # All; what was under way, alone; the rest.
    runs = [json.loads(line) for line in log.read_text().splitlines()]
    assert runs == [[None, 2], [[[2, False]], 1], [[[3, False]], 2]]


def test_processor_time_is_added_up(start, tmp_path):
    found = start(WORKER.replace("{log!r}", repr(str(tmp_path / "log"))))
    assert found.cpu_s == 1.5  # of the one worker that came to its end


def test_a_refusal_is_an_error_of_one_line(start):
    script = 'print(\'{"event": "refused", "message": "no such card"}\')'
    with pytest.raises(SurveyError, match=r"^no such card$"):
        start(script)


def test_a_worker_that_crashes_at_once_is_an_error_and_no_loop(start):
    script = """
import json, os, sys
print(json.dumps({"event": "jobs", "jobs": [[0, False]]}), flush=True)
print("cannot load", file=sys.stderr, flush=True)
os.abort()
"""
    with pytest.raises(SurveyError, match="process crashed: cannot load"):
        start(script)


def test_a_worker_that_says_nothing_is_an_error(start):
    with pytest.raises(SurveyError, match=r"process crashed: .*ImportError"):
        start("raise ImportError('no jax')")


def test_the_worker_uses_no_device_and_imports_what_we_do():
    environment = worker_environment({"PATH": "/bin", "JAX_PLATFORMS": "cuda"})
    assert environment["PATH"] == "/bin"
    assert environment["JAX_PLATFORMS"] == "cpu"
    assert all(folder in sys.path for folder in environment["PYTHONPATH"].split(":"))


@pytest.mark.parametrize("end", ["os.abort()", "time.sleep(600)"])
def test_a_worker_that_is_stopped_leaves_nothing_behind(start, tmp_path, end):
    log = tmp_path / "log"
    script = f"""
import json, os, tempfile, time
_, path = tempfile.mkstemp()
with open({str(log)!r}, "w") as log:
    json.dump([os.getpid(), path], log)
print(json.dumps({{"event": "jobs", "jobs": [[0, False], [1, False]]}}), flush=True)
print(json.dumps({{"event": "started", "job": [0, False]}}), flush=True)
print(json.dumps({{"event": "failed", "job": [0, False], "message": ""}}), flush=True)
{end}
"""

    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt if "sleep" in end else SurveyError):
        start(script, progress=interrupt if "sleep" in end else lambda _: None)
    pid, path = json.loads(log.read_text())
    assert not os.path.exists(path)
    assert "jengine-aot-" in path
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
