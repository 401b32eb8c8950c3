"""A small model's programs, compiled for cards that are not here."""

import dataclasses
import json
import os

import pytest

from jengine.aot.compiler import Compiler
from jengine.aot.facts import ProgramFacts
from jengine.aot.report import make_report
from jengine.aot.request import Job
from jengine.aot.sizes import basis_of
from jengine.aot.supervisor import run_survey
from jengine.aot.survey import plan_survey
from jengine.runner.program_keys import program_name

pytestmark = pytest.mark.aot

SMALL = {
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "num_hidden_layers": 5,
    "vocab_size": 1024,
}
OPTIONS = {
    "max_num_seqs": 2,
    "max_num_batched_tokens": 32,
    "max_model_len": 1024,
    "num_gpu_blocks_override": 200,
}


@pytest.fixture(scope="module")
def request_of(make_request):
    def make(*names, options=OPTIONS, **fields):
        request = make_request(changes=SMALL, options=options, **fields)
        keys = [program_name(key) for key in plan_survey(request).keys]
        only = tuple(Job(keys.index(n.rstrip("!")), n.endswith("!")) for n in names)
        return dataclasses.replace(request, only=only)

    return make


def compile_here(request, folder):
    found = {}
    compiler = Compiler(plan_survey(request), folder)
    compiler.compile_all(
        request.only, lambda job: None, lambda job, facts: found.update({job: facts})
    )
    return found


def test_programs_are_compiled_and_looked_at(request_of, tmp_path):
    request = request_of("decode_r2_w64_greedy", "sample_r2_greedy")
    found = compile_here(request, tmp_path)
    decode, sample = (found[job] for job in request.only)
    assert isinstance(decode, ProgramFacts), decode
    assert isinstance(sample, ProgramFacts), sample
    assert (decode.layers, sample.layers) == (3, 0)
    assert decode.kv_copies == 0
    assert decode.aliased_bytes == 3 * 2 * 200 * 2 * 16 * 64 * 2 + 2 * 4
    assert decode.launches_per_layer is not None
    assert decode.launches > 3 * decode.launches_per_layer > 3
    assert "paged_attention_decode" in [kernel.name for kernel in decode.kernels]
    assert all(kernel.registers > 0 for kernel in decode.kernels)
    assert sample.kernels == ()
    assert sample.launches < decode.launches
    left = [path.name for path in tmp_path.iterdir()]
    assert left == ["kernels.bin"]


def test_a_program_that_cannot_be_lowered_costs_only_itself(
    request_of, tmp_path, monkeypatch
):
    request = request_of("sample_r2_greedy", "sample_r2_random")
    lower = Compiler._lower

    def fail_once(self, job):
        if job == request.only[0]:
            raise ValueError("too\nlarge")
        return lower(self, job)

    monkeypatch.setattr(Compiler, "_lower", fail_once)
    found = compile_here(request, tmp_path)
    assert found[request.only[0]] == "too large"
    assert isinstance(found[request.only[1]], ProgramFacts)


def test_a_worker_compiles_and_saves_in_a_process_of_its_own(request_of, tmp_path):
    request = request_of("sample_r2_greedy!", layers=None, save=str(tmp_path))
    found = run_survey(request, os.environ)
    assert found.failures == {}
    assert isinstance(found.facts[request.only[0]], ProgramFacts)
    (folder,) = tmp_path.iterdir()
    assert sorted(path.name for path in folder.iterdir()) == [
        "configuration.json",
        "sample_r2_greedy.jax-executable",
    ]
    described = json.loads((folder / "configuration.json").read_text())
    assert described["target"] == "h200"


def test_what_is_concluded_of_a_size_is_what_compiling_it_finds(request_of):
    names = ("decode_r128_w64_greedy", "sample_r16_random")
    options = OPTIONS | {"max_num_seqs": 256, "max_num_batched_tokens": 256}
    request = request_of(*names, options=options)
    survey = plan_survey(request)
    wanted = [job.number for job in request.only]
    bases = [basis_of(survey, survey.keys[number]) for number in wanted]
    needed = dict.fromkeys(number for basis in bases for number in basis.numbers)
    jobs = tuple(Job(number, False) for number in (*needed, *wanted))
    assert len(needed) == 2 + 3
    found = run_survey(dataclasses.replace(request, only=jobs), os.environ)
    assert found.failures == {}
    proofs = [proof for proof in make_report(found).proofs if proof.of_size]
    assert [proof.name for proof in proofs] == list(names)
    for proof in proofs:
        assert proof.holds, proof
        found_bytes = proof.found.temp_bytes
        assert proof.concluded.temp_bytes == pytest.approx(found_bytes, rel=0.25)
