import io
import json

import pytest

from jengine.aot import worker
from jengine.aot.facts import ProgramFacts
from jengine.aot.request import Job
from jengine.aot.toolchain import MissingToolError

# Few programs: describing each takes its time under type checks.
FEW = {"max_num_seqs": 4, "max_num_batched_tokens": 64, "max_model_len": 512}
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
)


class FakeCompiler:
    """Fails on every second program."""

    def __init__(self, survey, folder):
        assert folder.is_dir()
        self.survey = survey

    def compile_all(self, jobs, started, done):
        for place, job in enumerate(jobs):
            started(job)
            done(job, FACTS if place % 2 == 0 else "too large")


@pytest.fixture
def serve(monkeypatch, capsys):
    """Hands a request to the worker and returns what it tells."""

    def run(request, compiler=FakeCompiler):
        monkeypatch.setattr(worker, "Compiler", compiler)
        monkeypatch.setattr("sys.stdin", io.StringIO(request.to_json() + "\n"))
        worker.main()
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


def test_what_is_told_of_a_survey(serve, make_request):
    only = (Job(0, False), Job(3, True))
    told = serve(make_request(only=only, options=FEW))
    events = [line["event"] for line in told]
    assert events == ["survey", "jobs", "started", "done", "started", "failed", "end"]
    assert told[0]["target"] == "h200"
    assert told[0]["jax"]
    assert told[1]["jobs"] == [[0, False], [3, True]]
    assert told[2]["job"] == told[3]["job"] == [0, False]
    assert ProgramFacts.from_dict(told[3]["facts"]) == FACTS
    assert told[5] == {"event": "failed", "job": [3, True], "message": "too large"}
    assert told[-1]["cpu_s"] > 0


def test_a_request_that_makes_no_sense_is_refused(serve, make_request):
    told = serve(make_request(target="tpu"))
    assert [line["event"] for line in told] == ["refused"]
    assert "target is 'tpu'" in told[0]["message"]


def test_a_missing_tool_is_a_refusal_too(serve, make_request):
    def missing(survey, folder):
        raise MissingToolError("install it")

    told = serve(make_request(options=FEW), missing)
    assert told == [{"event": "refused", "message": "install it"}]


def test_a_bug_is_no_refusal(serve, make_request):
    def broken(survey, folder):
        raise TypeError("a bug")

    with pytest.raises(TypeError, match="a bug"):
        serve(make_request(options=FEW), broken)
