import dataclasses

import pytest

from jengine.aot.overview import describe_survey, jobs
from jengine.aot.request import Job
from jengine.aot.sizes import checked, chosen
from jengine.aot.survey import plan_survey
from jengine.runner.program_keys import SampleKey, program_name

SMALL = {"max_num_seqs": 4, "max_num_batched_tokens": 32, "max_model_len": 4096}


@pytest.fixture(scope="module")
def survey(make_request):
    return plan_survey(make_request(options=SMALL))


def test_every_program_has_a_line_of_its_own(survey):
    described = describe_survey(survey)
    names = [program["name"] for program in described["programs"]]
    assert names == [program_name(key) for key in survey.keys]
    assert len(set(names)) == len(names)


def test_the_roofline_is_bytes_by_bandwidth_or_operations_by_peak(survey):
    described = describe_survey(survey)
    for program in described["programs"]:
        by_bytes = program["bytes_moved"] / described["memory_bandwidth"]
        by_flops = program["flops"] / (described["bf16_tflops"] * 1e12)
        assert program["roofline_ms"] == pytest.approx(1e3 * max(by_bytes, by_flops))
        rate = program["tokens"] / program["roofline_ms"] * 1e3
        assert program["roofline_tokens_per_s"] == pytest.approx(rate)


def test_a_programs_size_is_that_of_its_bucket(survey):
    programs = {p["name"]: p for p in describe_survey(survey)["programs"]}
    decode = programs["decode_r2_w128_greedy"]
    assert (decode["kind"], decode["tokens"], decode["rows"]) == ("decode", 2, 2)
    assert decode["kv_bytes"] == survey.kv_bytes
    mixed = programs["forward_t32_w256"]
    assert (mixed["kind"], mixed["tokens"], mixed["rows"]) == ("mixed", 32, 4)
    sample = programs["sample_r2_greedy"]
    assert (sample["kind"], sample["tokens"], sample["kv_bytes"]) == ("sample", 2, 0)


def test_the_head_of_the_report_is_complete(survey):
    described = describe_survey(survey)
    assert described["target"] == "h200"
    assert described["model"] == "8b"
    assert described["kv_blocks"] == survey.num_blocks
    assert (described["num_layers"], described["layers_compiled"]) == (32, 3)
    assert described["parameters"] == 8_030_261_248


def test_chosen_programs_are_compiled_shallow_and_two_in_full(survey):
    found = jobs(survey)
    full = [job.number for job in found if job.full]
    names = [program_name(survey.keys[number]) for number in full]
    assert names == ["decode_r4_w256_greedy", "forward_t32_w256"]
    assert found[-2:] == [Job(number, True) for number in full]
    shallow = [job.number for job in found if not job.full]
    assert sorted(shallow) == sorted({*chosen(survey), *checked(survey)})


def test_all_sizes_can_be_asked_for(survey, make_request):
    found = jobs(plan_survey(make_request(options=SMALL, all_sizes=True)))
    assert sorted(job.number for job in found[:-2]) == list(range(len(survey.keys)))


def test_a_program_that_is_not_compiled_says_what_it_follows_from(survey):
    compiled = set(chosen(survey))
    described = describe_survey(survey)["programs"]
    for number, program in enumerate(described):
        assert (program["basis"] is None) == (number in compiled)
    basis = next(p["basis"] for p in described if p["name"] == "sample_r2_random")
    assert described[basis["like"]]["name"] == "sample_r4_random"
    assert described[basis["above"]]["name"] == "sample_r2_greedy"


def test_what_is_plain_comes_first_so_that_others_find_its_kernels(survey):
    every = plan_survey(dataclasses.replace(survey.request, all_sizes=True))
    found = [survey.keys[job.number] for job in jobs(every)[:-2]]
    names = [program_name(key) for key in found]
    for rows in (2, 4):
        greedy = names.index(f"decode_r{rows}_w128_greedy")
        assert greedy < names.index(f"decode_r{rows}_w128_random")
        assert greedy < names.index(f"forward_r{rows}_w128")
    assert isinstance(found[-1], SampleKey)
    everything = "sample_r4_random_filtered_masked_adjusted_listed_logprobs20"
    assert names[-1] == everything


def test_with_all_layers_each_program_is_compiled_once(survey, make_request):
    found = jobs(plan_survey(make_request(options=SMALL, layers=None)))
    assert all(job.full for job in found)
    assert sorted(job.number for job in found) == sorted(
        {*chosen(survey), *checked(survey)}
    )


def test_a_part_can_be_asked_for(survey):
    only = (Job(5, True), Job(2, False))
    asked = dataclasses.replace(survey.request, only=only)
    assert jobs(survey._replace(request=asked)) == list(only)
