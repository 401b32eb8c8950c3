"""What there is to compile, as an engine on that card would decide it."""

import pytest

from jengine.aot.survey import (
    context_of,
    device_shape,
    layer_cost,
    plan_survey,
    program_kind,
    shallow,
    step_shape,
    weight_bytes,
)
from jengine.errors import CheckpointError, ConfigError, UnsupportedError
from jengine.runner.bucket import make_buckets
from jengine.runner.program_keys import StepKey, all_keys

GIB = 2**30


@pytest.fixture(scope="module")
def survey(make_request):
    return plan_survey(make_request())


def named(survey, kind):
    return [key for key in survey.keys if program_kind(key) == kind]


def test_the_engine_would_decide_the_same(survey):
    assert survey.resolved.dtype == "bfloat16"
    assert survey.resolved.attention_backend == "pallas"
    assert survey.resolved.max_num_seqs == 256
    assert survey.resolved.max_num_batched_tokens == 8192
    buckets = make_buckets(
        max_num_seqs=256, token_budget=8192, max_blocks=8192, fewest_rows=2
    )
    assert survey.buckets == buckets
    keys = all_keys(buckets, 20)
    assert survey.keys == tuple(key for key in keys if isinstance(key, StepKey))
    assert len(survey.keys) < len(keys)


def test_weights_are_the_models_parameters(survey):
    assert survey.weight_bytes == 2 * survey.sizes.parameters == 16_060_522_496


def test_the_pool_takes_what_the_weights_leave(survey):
    usable = int(151397597184 * 0.92)
    left = usable - survey.weight_bytes
    assert 0.98 * left < survey.kv_bytes <= left
    assert survey.kv_block_bytes == 2 * 32 * 8 * 16 * 128 * 2
    assert survey.pool_tokens == (survey.num_blocks - 1) * 16
    assert device_shape(survey) == (survey.num_blocks, 8, 16, 128)


def test_options_are_the_engines(make_request):
    options = {"num_gpu_blocks_override": 101, "max_num_seqs": 4, "block_size": 32}
    found = plan_survey(make_request(options=options))
    assert found.num_blocks == 101
    assert found.pool_tokens == 3200 == found.max_model_len
    assert found.buckets.rows == (2, 4)
    assert found.buckets.table_widths == (100,)


def test_bad_options_are_refused(make_request):
    with pytest.raises(ConfigError, match="max_num_seqs"):
        plan_survey(make_request(options={"max_num_seqs": 0}))


def test_two_cards_hold_half_each(make_request, survey):
    two = plan_survey(make_request(tensor_parallel_size=2))
    norms = 2 * 4096 * (2 * 32 + 1)  # which are the same on each
    assert two.weight_bytes == (survey.weight_bytes + norms) // 2
    assert two.kv_block_bytes * 2 == survey.kv_block_bytes
    assert two.num_blocks > 2 * survey.num_blocks
    assert device_shape(two)[1] == 4


def test_a_model_that_does_not_fit_is_refused_with_numbers(make_request):
    big = {"num_hidden_layers": 80, "hidden_size": 8192, "num_attention_heads": 64}
    big |= {"intermediate_size": 28672}
    message = (
        r"13\d\.\d GiB of weights.*allowed: at most 36\.2 GiB on each a100-40g, 0\.92 "
        r"of its 39\.4 GiB.*--tensor-parallel-size"
    )
    with pytest.raises(ConfigError, match=message):
        plan_survey(make_request(changes=big, target="a100-40g"))


def test_a_longer_request_than_the_pool_holds_is_refused_if_it_was_asked_for(
    make_request,
):
    with pytest.raises(ConfigError, match="max_model_len"):
        plan_survey(make_request(target="l4", options={"max_model_len": 131072}))
    found = plan_survey(make_request(target="l4"))
    assert found.max_model_len == found.pool_tokens < 131072


def test_what_cannot_run_is_refused_by_name(make_request):
    with pytest.raises(UnsupportedError, match=r"8b: .*FancyForCausalLM"):
        plan_survey(make_request(changes={"architectures": ["FancyForCausalLM"]}))
    with pytest.raises(CheckpointError, match=r"8b: .*hidden_size"):
        plan_survey(make_request(changes={"hidden_size": -1}))
    with pytest.raises(UnsupportedError, match="num_kv_heads = 8 is not divisible by"):
        plan_survey(make_request(tensor_parallel_size=16))


def test_fewer_layers_are_the_first_ones(survey):
    assert shallow(survey.model, 3).num_layers == 3
    assert shallow(survey.model, 3).sliding_windows == (None,) * 3
    assert shallow(survey.model, None) is survey.model
    assert shallow(survey.model, 40) is survey.model


def test_layers_that_differ_are_all_kept(make_request):
    qwen = {
        "architectures": ["Qwen2ForCausalLM"],
        "use_sliding_window": True,
        "sliding_window": 1024,
        "max_window_layers": 16,
    }
    model = plan_survey(make_request(changes=qwen)).model
    assert shallow(model, 3) is model


def test_a_layer_adds_its_parameters_and_its_cache(survey):
    layer = layer_cost(survey)
    two = weight_bytes(shallow(survey.model, 2), "bfloat16", 1)
    assert layer.weight_bytes == two - weight_bytes(
        shallow(survey.model, 1), "bfloat16", 1
    )
    assert layer.kv_bytes * 32 == survey.kv_bytes
    assert layer.collectives == {}


def test_a_split_layer_has_two_all_reduces(make_request):
    two = plan_survey(make_request(tensor_parallel_size=2))
    assert layer_cost(two).collectives == {"all-reduce": 2}


def test_programs_have_one_of_four_kinds(survey):
    counts = {
        k: len(named(survey, k)) for k in ("decode", "forward", "mixed", "sample")
    }
    assert counts == {"decode": 48, "forward": 24, "mixed": 20, "sample": 180}
    assert sum(counts.values()) == len(survey.keys)


def test_the_roofline_supposes_full_rows_or_one_prompt(survey):
    decode, forward = named(survey, "decode")[2], named(survey, "forward")[1]
    assert decode.bucket.rows == forward.bucket.rows == 4
    assert step_shape(survey, decode) == (4, 4, 4096)
    assert step_shape(survey, forward) == (4, 0, 4096)
    assert step_shape(survey, named(survey, "mixed")[0]) == (16, 0, None)
    assert step_shape(survey, named(survey, "sample")[0]) == (0, 2, None)


def test_rows_share_the_pool(survey, make_request):
    assert context_of(survey, 1) == 4096
    assert context_of(survey, 256) == survey.pool_tokens // 256 < 4096
    long = plan_survey(make_request(context=10**9))
    assert context_of(long, 1) == 131072
