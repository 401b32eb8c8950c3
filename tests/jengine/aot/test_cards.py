"""Whole steps of public models, compiled for cards that are not here.

With the real widths and pools, and with three of the layers, which are all alike; one
decode step has all of them. No weights are needed, and nothing is run.
"""

import dataclasses
import os
from typing import NamedTuple

import pytest

from jengine.aot.facts import ProgramFacts
from jengine.aot.report import Report, make_report
from jengine.aot.request import Job
from jengine.aot.supervisor import run_survey
from jengine.aot.survey import Survey, layer_cost, plan_survey
from jengine.runner.program_keys import program_name

pytestmark = pytest.mark.aot

DECODE, MIXED = "decode_r8_w128_greedy", "forward_t512_w128"
WHOLE = DECODE + "!"
MORE = (
    "decode_r2_w128_greedy",
    "decode_r256_w8192_random",
    "forward_r64_w128",
    "forward_t16_w128",
    "forward_t8192_w8192",
)
CARDS = [("8b", "h200"), ("8b", "a100"), ("1b", "h200"), ("1b", "a100")]
SETS = [(*card, (DECODE, MIXED)) for card in CARDS]
SETS[0] = ("8b", "h200", (DECODE, MIXED, WHOLE))
MOST_LAUNCHES = 15  # of a layer


class Compiled(NamedTuple):
    survey: Survey
    facts: dict[str, ProgramFacts]
    report: Report


def compile_some(request, *names):
    """Compile programs by name, those that end in ! with all layers."""
    survey = plan_survey(request)
    keys = [program_name(key) for key in survey.keys]
    only = tuple(Job(keys.index(n.rstrip("!")), n.endswith("!")) for n in names)
    found = run_survey(dataclasses.replace(request, only=only), os.environ)
    assert found.failures == {}
    facts = {name: found.facts[job] for name, job in zip(names, only, strict=True)}
    return Compiled(survey, facts, make_report(found))


@pytest.fixture(
    scope="module",
    params=[
        *SETS,
        *(pytest.param((*card, MORE), marks=pytest.mark.slow) for card in CARDS),
    ],
    ids=lambda param: "-".join((*param[:2], "more" if param[2] is MORE else "few")),
)
def compiled(request, make_request):
    model, card, names = request.param
    return compile_some(make_request(model, target=card), *names)


def kernels(compiled):
    return [k for facts in compiled.facts.values() for k in facts.kernels]


def test_no_kernel_spills(compiled):
    found = {kernel.name: kernel.spill_bytes for kernel in kernels(compiled)}
    assert {"paged_attention_decode", "paged_attention_prefill"} <= set(found)
    assert set(found.values()) == {0}


def test_kernels_fit_into_shared_memory(compiled):
    most = compiled.survey.target.shared_memory_per_block_optin
    for kernel in kernels(compiled):
        assert 0 < kernel.shared_bytes <= most, kernel.name


def test_products_of_matrices_use_tensor_cores(compiled):
    hopper = compiled.survey.target.architecture == "sm_90"
    for name, facts in compiled.facts.items():
        for kernel in facts.kernels:
            found = kernel.instructions
            if (
                kernel.name == "paged_attention_prefill"
                and hopper
                and "_t16_" not in name
            ):
                assert found["wgmma.mma_async"] > 0, name
            elif kernel.name != "paged_attention_merge":
                assert found.get("mma.sync", 0) + found.get("wgmma.mma_async", 0), name


def test_the_cache_is_written_in_place(compiled):
    layer = layer_cost(compiled.survey).kv_bytes
    seats = 4 * compiled.survey.resolved.max_num_seqs  # whose last tokens change
    for name, facts in compiled.facts.items():
        assert facts.kv_copies == 0, name
        rest = seats if name.startswith("decode") else 0
        assert facts.aliased_bytes == facts.layers * layer + rest, name


def test_a_layer_takes_few_launches(compiled):
    for name, facts in compiled.facts.items():
        assert facts.launches_per_layer is not None, name
        assert facts.launches_per_layer <= MOST_LAUNCHES, name


def test_programs_fit_beside_the_cache(compiled):
    survey = compiled.survey
    largest = max(facts.own_bytes for facts in compiled.facts.values())
    needed = survey.weight_bytes + survey.kv_bytes + largest
    assert needed <= survey.target.memory_bytes


@pytest.mark.parametrize("compiled", SETS[:1], indirect=True, ids=["8b-h200"])
def test_all_layers_are_what_three_led_to(compiled):
    whole = compiled.facts[WHOLE]
    assert whole.layers == 32
    assert whole.aliased_bytes == compiled.survey.kv_bytes + 4 * 256
    (proof,) = compiled.report.proofs
    assert proof.found == whole
    assert proof.holds
    assert proof.found.kernels == proof.concluded.kernels


def test_two_cards_add_up_what_each_has_of_a_step(make_request):
    found = compile_some(make_request(tensor_parallel_size=2), DECODE)
    # Two a layer and one for the embedding; the logits are gathered.
    decode = found.facts[DECODE]
    assert decode.collectives == {"all-reduce": 2 * 3 + 1, "all-gather": 1}
    assert decode.kv_copies == 0
    assert {kernel.spill_bytes for kernel in decode.kernels} == {0}


@pytest.mark.slow
def test_two_cards_gather_logits_only_where_there_are_some(make_request):
    request = make_request(tensor_parallel_size=2)
    found = compile_some(request, MIXED, "sample_r8_greedy")
    mixed, sample = found.facts.values()
    assert mixed.collectives == {"all-reduce": 2 * 3 + 1}
    assert mixed.aliased_bytes == 3 * layer_cost(found.survey).kv_bytes
    assert mixed.kv_copies == 0
    assert {kernel.spill_bytes for kernel in kernels(found)} == {0}
    assert sample.collectives == {"all-gather": 1}
