"""The worker without a process: what it is told, and what it answers."""

import json
import os
import time

import pytest

from jengine.bench.compare import worker

ENGINE = """
def load(options):
    return Engine(options["factor"])

class Engine:
    def __init__(self, factor):
        self.factor = factor

    def versions(self):
        return {"version": "1.2", "versions": {"numpy": "2"}}

    def generate(self, prompts, output_tokens):
        return [[self.factor * prompt[0]] * output_tokens for prompt in prompts]
"""


@pytest.fixture
def engine_file(tmp_path):
    path = tmp_path / "some_engine.py"
    path.write_text(ENGINE)
    return str(path)


def serve(engine_file, *questions):
    lines = [json.dumps(question) + "\n" for question in questions]
    answers = []
    started = time.monotonic() - 100.0
    status = worker.serve(engine_file, lines, answers.append, started=started)
    return status, [json.loads(line) for line in answers]


def test_it_loads_then_generates(engine_file):
    status, (loaded, done) = serve(
        engine_file, {"factor": 3}, {"prompts": [[1], [2]], "output_tokens": 2}
    )
    assert status == 0
    assert loaded.pop("init_s") >= 100.0
    assert loaded == {"version": "1.2", "versions": {"numpy": "2"}}
    assert done["token_ids"] == [[3, 3], [6, 6]]
    assert 0 <= done["seconds"] <= done["since_start_s"] - 100.0


def test_a_failure_is_an_answer(engine_file, capsys):
    status, (answer,) = serve(engine_file, {})
    assert status == 1
    assert answer == {"error": "KeyError: 'factor'"}
    assert "in load" in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux only")
def test_it_stays_on_so_many_cpus():
    before = os.sched_getaffinity(0)
    try:
        worker.limit_cpus(1)
        assert os.sched_getaffinity(0) == {min(before)}
    finally:
        os.sched_setaffinity(0, before)
