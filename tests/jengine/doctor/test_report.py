import json

from jengine.doctor.report import Fact, Problem, Report

FACTS = {"device": (Fact("attention", "xla", "this is a CPU"), Fact("devices", "1"))}


def test_plain_values():
    report = Report(FACTS, (Problem("no jax", "pip install jax", stops=True),))
    assert json.loads(json.dumps(report.to_dict())) == {
        "can_run": False,
        "problems": [{"what": "no jax", "remedy": "pip install jax", "stops": True}],
        "device": {
            "attention": {"value": "xla", "why": "this is a CPU"},
            "devices": "1",
        },
    }


def test_what_does_not_stop_a_model():
    assert Report(FACTS, (Problem("full disk", "empty it"),)).can_run
    assert Report(FACTS, ()).can_run
