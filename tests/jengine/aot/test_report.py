import dataclasses
import json

import pytest

from jengine.aot.facts import KernelFacts, ProgramFacts
from jengine.aot.report import make_report
from jengine.aot.request import Job
from jengine.aot.supervisor import Findings

KERNEL = KernelFacts(
    name="decode", registers=96, spill_bytes=0, shared_bytes=1, instructions={}
)
FACTS = ProgramFacts(
    layers=3,
    compile_s=2.0,
    argument_bytes=230,
    output_bytes=70,
    temp_bytes=5,
    aliased_bytes=60,
    kv_copies=0,
    launches=40,
    launches_per_layer=10,
    collectives={},
    kernels=(KERNEL,),
)
WHOLE = dataclasses.replace(
    FACTS,
    layers=4,
    argument_bytes=300,
    output_bytes=90,
    aliased_bytes=80,
    launches=50,
    compile_s=9.0,
)
SURVEY = {
    "target": "h200",
    "memory_bytes": 1000,
    "weight_bytes": 500,
    "kv_bytes": 400,
    "num_layers": 4,
    "layer": {"weight_bytes": 50, "kv_bytes": 20, "collectives": {}},
    "programs": [
        {"name": "a", "kind": "decode", "basis": None},
        {"name": "b", "kind": "sample", "basis": None},
    ],
}
BASIS = {
    "below": 0,
    "above": 1,
    "share": 0.5,
    "like": 1,
    "reporting": 1,
    "largest": 1,
    "rows_share": 0.5,
    "argument_bytes_less": 7,
    "output_bytes_less": 3,
}


@pytest.fixture
def findings():
    return Findings(
        survey=SURVEY,
        facts={Job(0, False): FACTS, Job(1, False): FACTS, Job(0, True): WHOLE},
    )


def test_a_program_has_what_was_described_and_what_was_found(findings):
    report = make_report(findings)
    second = report.programs[1]
    assert (second["name"], second["kind"]) == ("b", "sample")
    assert second["launches"] == 50
    assert second["kernels"][0]["registers"] == 96
    assert report.failures == ()


def test_what_was_compiled_in_full_is_taken_from_there(findings):
    report = make_report(findings)
    assert report.programs[0]["compile_s"] == 9.0
    assert [proof.name for proof in report.proofs] == ["a"]
    assert report.proofs[0].holds


@pytest.mark.parametrize("name", ["launches", "kv_copies", "aliased_bytes"])
def test_a_proof_that_differs_is_seen(findings, name):
    wrong = dataclasses.replace(WHOLE, **{name: getattr(WHOLE, name) + 1})
    findings.facts[Job(0, True)] = wrong
    assert not make_report(findings).proofs[0].holds


def test_a_failed_program_has_its_reason(findings):
    del findings.facts[Job(1, False)]
    findings.failures[Job(1, False)] = "the compiler crashed: LLVM ERROR"
    report = make_report(findings)
    assert report.programs[1]["error"] == "the compiler crashed: LLVM ERROR"
    assert "launches" not in report.programs[1]
    assert [p["name"] for p in report.failures] == ["b"]


def test_the_largest_program_must_fit_beside_weights_and_cache(findings):
    report = make_report(findings)
    assert report.largest_own_bytes == 5 + 70 + 20 - 80 == 15
    assert report.needed_bytes == 915
    assert report.fits
    findings.facts[Job(1, False)] = dataclasses.replace(FACTS, temp_bytes=101)
    assert not make_report(findings).fits


def test_the_whole_report_is_json(findings):
    loaded = json.loads(json.dumps(make_report(findings).to_dict()))
    assert loaded["target"] == "h200"
    assert loaded["needed_bytes"] == 915
    assert loaded["programs"][0]["kernels"][0]["name"] == "decode"
    assert loaded["proofs"][0]["holds"] is True
    assert loaded["proofs"][0]["found"]["launches"] == 50
    assert loaded["proofs"][0]["from"] == "fewer layers"
    assert "basis" not in loaded["programs"][0]
    assert loaded["programs"][0]["concluded_from"] == []
    assert "layer" not in loaded


@pytest.fixture
def with_a_third(findings):
    """Findings with a third program, which follows from both others."""
    programs = [*SURVEY["programs"], {"name": "c", "kind": "sample", "basis": BASIS}]
    findings.survey = SURVEY | {"programs": programs}
    return findings


def test_a_program_that_was_not_compiled_says_what_it_follows_from(with_a_third):
    third = make_report(with_a_third).programs[2]
    assert third["concluded_from"] == ["b", "a"]
    assert third["compile_s"] is None
    assert third["argument_bytes"] == 300 - 7
    assert third["own_bytes"] == 5 + (90 - 3) - 80
    assert third["kernels"][0]["registers"] == 96


def test_what_follows_from_a_failure_has_no_figures(with_a_third):
    del with_a_third.facts[Job(1, False)]
    with_a_third.failures[Job(1, False)] = "too large"
    third = make_report(with_a_third).programs[2]
    assert third["error"] == "would follow from b: no figures of that"


EXACT = {"argument_bytes": 293, "output_bytes": 87}


@pytest.mark.parametrize(
    ("changes", "holds"),
    [
        ({}, True),
        ({"launches": 45}, True),
        ({"launches": 44}, False),
        ({"launches": 57}, True),
        ({"launches": 58}, False),
        ({"temp_bytes": 5 + 4 * 2**20}, True),
        ({"temp_bytes": 2**30}, False),
        ({"argument_bytes": 294}, False),
        ({"output_bytes": 88}, False),
        ({"aliased_bytes": 79}, False),
        ({"kv_copies": 1}, False),
        ({"collectives": {"all-gather": 1}}, False),
        ({"kernels": (dataclasses.replace(KERNEL, spill_bytes=8),)}, False),
        ({"kernels": (dataclasses.replace(KERNEL, registers=97),)}, True),
    ],
    ids=str,
)
def test_a_program_that_was_compiled_besides_is_a_proof(with_a_third, changes, holds):
    found = dataclasses.replace(WHOLE, **(EXACT | changes))
    with_a_third.facts[Job(2, False)] = found
    proof = next(p for p in make_report(with_a_third).proofs if p.of_size)
    assert (proof.name, proof.holds) == ("c", holds)
    assert proof.found == found
    assert make_report(with_a_third).programs[2]["concluded_from"] == []
