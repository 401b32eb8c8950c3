"""Which programs are compiled; what is said of the others is checked elsewhere."""

import dataclasses

import jax
import pytest

from jengine.aot.abstract import program_shapes
from jengine.aot.sizes import (
    basis_of,
    checked,
    chosen,
    compiled_sizes,
    host_bytes,
    resized,
    sizes_of,
    tiles_of,
)
from jengine.aot.survey import plan_survey, shallow
from jengine.runner.program_keys import program_name
from jengine.runner.programs import _call

WAYS = [
    f"sample_r256_{way}"
    for way in (
        "greedy_masked",
        "random",
        "random_masked",
        "random_filtered",
        "random_filtered_masked",
    )
]
NO_LAYERS = {"num_hidden_layers": 1, "vocab_size": 1000, "hidden_size": 64}
NO_LAYERS |= {"num_attention_heads": 2, "num_key_value_heads": 1}
NO_LAYERS |= {"intermediate_size": 64, "head_dim": 32}


@pytest.fixture(scope="module")
def survey(make_request):
    return plan_survey(make_request())


def key_of(survey, name):
    return next(key for key in survey.keys if program_name(key) == name)


def names(survey, numbers):
    return [program_name(survey.keys[number]) for number in numbers]


def test_few_programs_stand_for_all(survey):
    assert len(chosen(survey)) < len(survey.keys) / 5
    every = plan_survey(dataclasses.replace(survey.request, all_sizes=True))
    assert chosen(every) == list(range(len(every.keys)))
    assert checked(every) == []
    assert all(basis_of(every, key) is None for key in every.keys)


def test_variants_are_compiled_in_the_largest_size(survey):
    compiled = names(survey, chosen(survey))
    every = map(program_name, survey.keys)
    largest = [name for name in every if "_r256_" in name or "_t8192_" in name]
    left = [name for name in largest if name not in compiled]
    # Of ways to sample and to report, each is compiled without the other.
    assert all(name.startswith("sample_r256_") for name in left)
    assert left == [f"{silent}_logprobs20" for silent in compiled if silent in WAYS]
    # Whether all fits is decided by a program that is compiled.
    assert "sample_r256_random_filtered_masked_adjusted_listed_logprobs20" in compiled


@pytest.mark.parametrize("name", ["decode_r8_w128_greedy", "forward_t16_w128"])
def test_each_choice_of_tiles_is_compiled(survey, name):
    key = key_of(survey, name)
    sizes = compiled_sizes(survey, key)
    tilings = {tiles_of(survey, resized(key, size)) for size in sizes_of(survey, key)}
    assert len(tilings) > 1
    assert {tiles_of(survey, resized(key, size)) for size in sizes} == tilings


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_a_program_is_compiled_or_follows_from_compiled_ones(survey, every):
    compiled = set(chosen(survey))
    for number, key in list(enumerate(survey.keys))[::every]:
        basis = basis_of(survey, key)
        assert (basis is None) == (number in compiled)
        if basis is not None:
            assert set(basis.numbers) <= compiled
            assert 0 <= basis.share < 1
            above = survey.keys[basis.above]
            assert tiles_of(survey, above) == tiles_of(survey, key)


def test_a_program_follows_from_its_neighbours_and_its_variant(survey):
    basis = basis_of(survey, key_of(survey, "decode_r64_w8192_random"))
    assert basis is not None
    assert names(survey, basis.numbers) == [
        "decode_r256_w128_greedy",
        "decode_r24_w128_greedy",
        "decode_r256_w8192_random",
    ]
    assert basis.share == (64 - 24) / (256 - 24)
    assert basis.rows_share == 64 / 256


def test_a_way_to_sample_and_a_report_are_put_together(survey):
    name = "sample_r256_random_filtered_logprobs20"
    basis = basis_of(survey, key_of(survey, name))
    assert basis is not None
    assert names(survey, basis.numbers) == [
        "sample_r256_greedy",
        "sample_r256_random_filtered",
        "sample_r256_greedy_logprobs20",
    ]
    assert (basis.share, basis.rows_share) == (0, 1)
    assert basis.argument_bytes_less == 0
    assert basis.output_bytes_less == -256 * 4 * (2 + 2 * 20)


def test_rows_of_a_mixed_step_are_the_same_in_all_sizes(survey):
    basis = basis_of(survey, key_of(survey, "forward_t512_w8192"))
    assert basis is not None
    assert basis.rows_share == 1
    assert names(survey, [basis.below, basis.above]) == [
        "forward_t256_w128",
        "forward_t8192_w128",
    ]


def test_one_program_of_each_kind_is_a_check(survey):
    found = names(survey, checked(survey))
    kinds = [name.split("_")[0] for name in found]
    assert kinds == ["decode", "forward", "sample"]
    assert set(checked(survey)).isdisjoint(chosen(survey))


def test_one_size_leaves_only_sums_to_conclude(make_request):
    options = {"max_num_seqs": 1, "max_num_batched_tokens": 16, "max_model_len": 512}
    survey = plan_survey(make_request(options=options))
    left = set(range(len(survey.keys))) - set(chosen(survey))
    ways = [way.replace("_r256_", "_r1_") for way in WAYS]
    assert set(names(survey, left)) == {f"{way}_logprobs20" for way in ways}


def test_bytes_are_those_of_the_programs_arguments_and_results(make_request):
    options = {"max_num_seqs": 4, "max_num_batched_tokens": 32, "max_model_len": 512}
    survey = plan_survey(
        make_request(changes=NO_LAYERS, options=options | {"max_logprobs": 5})
    )
    mesh = jax.sharding.AbstractMesh((1,), ("x",))
    shapes = program_shapes(survey, shallow(survey.model, 1), mesh)
    rest = {}
    for key in survey.keys:
        call = _call(shapes, key)
        given = sum(map(size_of_leaf, jax.tree.leaves(call.args)))
        returned = jax.eval_shape(call.function, *call.args)
        made = sum(map(size_of_leaf, jax.tree.leaves(returned)))
        mine = host_bytes(survey, key)
        variant = program_name(resized_to_largest(survey, key))
        rest.setdefault(variant, set()).add(
            (given - mine.arguments, made - mine.results)
        )
    assert len(rest) < len(survey.keys)
    assert all(len(found) == 1 for found in rest.values()), rest


def size_of_leaf(leaf):
    return leaf.size * leaf.dtype.itemsize


def resized_to_largest(survey, key):
    return resized(key, sizes_of(survey, key)[-1])
