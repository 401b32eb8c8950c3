import dataclasses

import pytest

from jengine.aot.conclude import Basis, conclude
from jengine.aot.facts import KernelFacts, ProgramFacts

KERNEL = KernelFacts(
    name="decode", registers=96, spill_bytes=0, shared_bytes=72192, instructions={}
)
# Of 2, 8, 64 and 64 rows: plain ones, and the last samples at random.
SMALL = ProgramFacts(
    layers=32,
    compile_s=4.0,
    argument_bytes=1000 + 2 * 5,
    output_bytes=500 + 2,
    temp_bytes=30 + 2 * 100,
    aliased_bytes=500,
    kv_copies=0,
    launches=32 * 14 + 10,
    launches_per_layer=14,
    collectives={"all-reduce": 65},
    kernels=(KERNEL, dataclasses.replace(KERNEL, name="merge")),
)
MIDDLE = dataclasses.replace(
    SMALL,
    argument_bytes=1000 + 8 * 5,
    output_bytes=500 + 8,
    temp_bytes=30 + 8 * 100,
    launches=32 * 13 + 10,
    launches_per_layer=13,
    kernels=(KERNEL,),
)
LARGE = dataclasses.replace(
    MIDDLE,
    argument_bytes=1000 + 64 * 5,
    output_bytes=500 + 64,
    temp_bytes=30 + 64 * 100,
    launches=32 * 12 + 9,
    launches_per_layer=12,
)
# XLA may put a launch more into each layer for no reason that carries over.
RANDOM = dataclasses.replace(
    LARGE,
    temp_bytes=LARGE.temp_bytes + 64 * 10,
    launches=32 * 13 + 9 + 8,
    launches_per_layer=13,
)
REPORTING = dataclasses.replace(
    LARGE, temp_bytes=LARGE.temp_bytes + 64 * 7, launches=LARGE.launches + 20
)
FACTS = {3: SMALL, 5: MIDDLE, 8: LARGE, 9: RANDOM, 10: REPORTING}
# Of 4 rows, at random.
BASIS = Basis(
    below=3,
    above=5,
    share=1 / 3,
    like=9,
    reporting=8,
    largest=8,
    rows_share=4 / 64,
    argument_bytes_less=60 * 5,
    output_bytes_less=60,
)


def test_each_program_is_named_once():
    assert BASIS.numbers == (5, 3, 9, 8)
    assert BASIS._replace(like=8, above=8).numbers == (8, 3)


def test_bytes_grow_with_the_rows():
    found = conclude(BASIS, FACTS)
    assert found.argument_bytes == 1000 + 4 * 5
    assert found.output_bytes == 500 + 4
    assert found.temp_bytes == 30 + 4 * 100 + 4 * 10
    assert found.aliased_bytes == 500


def test_launches_are_those_of_the_neighbour_with_more_and_what_the_variant_adds():
    found = conclude(BASIS, FACTS)
    assert found.launches == 32 * 14 + 10 + 8
    assert found.launches_per_layer == 14
    between = conclude(BASIS._replace(below=5, above=8), FACTS)
    assert between.launches == 32 * 13 + 10 + 8
    assert between.launches_per_layer == 13


def test_a_report_adds_to_what_the_variant_adds():
    silent = conclude(BASIS, FACTS)
    assert conclude(BASIS._replace(reporting=10), FACTS) == dataclasses.replace(
        silent,
        temp_bytes=silent.temp_bytes + 4 * 7,
        launches=silent.launches + 20,
    )


def test_kernels_are_those_of_the_next_larger_size():
    assert conclude(BASIS, FACTS).kernels == (KERNEL,)
    assert conclude(BASIS._replace(above=3), FACTS).kernels == SMALL.kernels


@pytest.mark.parametrize("name", ["below", "above"])
def test_copies_of_the_cache_are_not_overlooked(name):
    copies = dataclasses.replace(FACTS[getattr(BASIS, name)], kv_copies=4)
    facts = FACTS | {getattr(BASIS, name): copies}
    assert conclude(BASIS, facts).kv_copies == 4


def test_what_only_the_variant_copies_is_not_overlooked():
    facts = FACTS | {9: dataclasses.replace(RANDOM, kv_copies=64)}
    assert conclude(BASIS, facts).kv_copies == 64


def test_a_program_without_layers_has_none():
    facts = {
        n: dataclasses.replace(f, layers=0, launches=20 + n, launches_per_layer=None)
        for n, f in FACTS.items()
    }
    found = conclude(BASIS, facts)
    assert found.launches_per_layer is None
    assert found.launches == 25 + (29 - 28)


def test_nothing_was_compiled_for_it():
    assert conclude(BASIS, FACTS).compile_s == 0.0
