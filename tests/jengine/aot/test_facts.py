import dataclasses
import json

import pytest

from jengine.aot.facts import KernelFacts, LayerCost, ProgramFacts, scale

KERNEL = KernelFacts(
    name="paged_attention_decode",
    registers=96,
    spill_bytes=0,
    shared_bytes=72192,
    instructions={"mma.sync": 64},
)
FACTS = ProgramFacts(
    layers=3,
    compile_s=4.5,
    argument_bytes=1000 + 3 * (50 + 20),
    output_bytes=9 + 3 * 20,
    temp_bytes=77,
    aliased_bytes=4 + 3 * 20,
    kv_copies=0,
    launches=10 + 3 * 14,
    launches_per_layer=14,
    collectives={"all-reduce": 1 + 3 * 2, "all-gather": 1},
    kernels=(KERNEL,),
)
LAYER = LayerCost(weight_bytes=50, kv_bytes=20, collectives={"all-reduce": 2})


def test_facts_survive_json():
    text = json.dumps(FACTS.to_dict())
    assert ProgramFacts.from_dict(json.loads(text)) == FACTS


def test_what_must_be_free_beside_the_arguments():
    assert FACTS.own_bytes == 77 + 69 - 64


def test_more_layers_add_what_a_layer_has():
    whole = scale(FACTS, 32, LAYER)
    assert whole == dataclasses.replace(
        FACTS,
        layers=32,
        argument_bytes=1000 + 32 * 70,
        output_bytes=9 + 32 * 20,
        aliased_bytes=4 + 32 * 20,
        launches=10 + 32 * 14,
        collectives={"all-reduce": 65, "all-gather": 1},
    )


def test_a_cache_that_is_not_written_in_place_stays_so():
    lost = dataclasses.replace(FACTS, aliased_bytes=0, kv_copies=6)
    whole = scale(lost, 32, LAYER)
    assert whole.aliased_bytes == 0
    assert whole.kv_copies == 64


@pytest.mark.parametrize(
    "changes",
    [{"layers": 0, "launches_per_layer": None}, {"launches_per_layer": None}],
    ids=["a sampling program", "no layers seen"],
)
def test_without_layers_nothing_is_concluded(changes):
    facts = dataclasses.replace(FACTS, **changes)
    assert scale(facts, 32, LAYER) is facts


def test_a_whole_program_is_what_it_is():
    assert scale(FACTS, 3, LAYER) is FACTS
