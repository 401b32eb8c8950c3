import argparse
import dataclasses

import pytest

from jengine.cli_options import (
    ENGINE_FIELDS,
    SAMPLING_FIELDS,
    add_engine_flags,
    add_sampling_flags,
    take_engine,
    take_sampling,
)
from jengine.config import EngineConfig
from jengine.sampling_params import SamplingParams


@pytest.fixture
def parser():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_sampling_flags(parser)
    add_engine_flags(parser)
    return parser


def test_a_flag_that_was_not_given_leaves_no_trace(parser):
    flags = parser.parse_args([])
    assert take_sampling(flags) == {}
    assert take_engine(flags) == {}


SAMPLING_CASES = [
    ("--max-tokens 5", {"max_tokens": 5}),
    ("--temperature 0", {"temperature": 0.0}),
    ("--top-k -1 --top-p 0.5 --min-p 0.1", {"top_k": -1, "top_p": 0.5, "min_p": 0.1}),
    ("--seed 7", {"seed": 7}),
    ("--stop a --stop b", {"stop": ["a", "b"]}),
    ("--stop-token-ids 3 4", {"stop_token_ids": [3, 4]}),
    ("--min-tokens 2 --ignore-eos", {"min_tokens": 2, "ignore_eos": True}),
    ("--logprobs 3", {"logprobs": 3}),
]
ENGINE_CASES = [
    ("--dtype float32", {"dtype": "float32"}),
    ("--max-model-len 64", {"max_model_len": 64}),
    ("--max-model-len auto", {"max_model_len": "auto"}),
    ("--no-enable-prefix-caching", {"enable_prefix_caching": False}),
    ("--no-enable-chunked-prefill", {"enable_chunked_prefill": False}),
    (
        "--no-async-scheduling --enforce-eager",
        {"async_scheduling": False, "enforce_eager": True},
    ),
    ("--scheduling-policy priority", {"scheduling_policy": "priority"}),
    (
        "--num-gpu-blocks-override 9 --block-size 8",
        {"num_gpu_blocks_override": 9, "block_size": 8},
    ),
    ("--engine-seed 3", {"seed": 3}),
    ("--compilation-cache-dir off", {"compilation_cache_dir": False}),
    ("--compilation-cache-dir c", {"compilation_cache_dir": "c"}),
    (
        '--override-generation-config {"top_k":3}',
        {"override_generation_config": {"top_k": 3}},
    ),
]


@pytest.mark.parametrize(("line", "fields"), SAMPLING_CASES)
def test_sampling_flags(parser, line, fields):
    assert take_sampling(parser.parse_args(line.split())) == fields
    SamplingParams(**fields)


@pytest.mark.parametrize(("line", "fields"), ENGINE_CASES)
def test_engine_flags(parser, line, fields):
    assert take_engine(parser.parse_args(line.split())) == fields
    EngineConfig(model="m", **fields)


def test_both_seeds_can_be_given(parser):
    flags = parser.parse_args(["--seed", "1", "--engine-seed", "2"])
    assert (take_sampling(flags), take_engine(flags)) == ({"seed": 1}, {"seed": 2})


def test_every_field_has_a_flag_with_help(parser):
    names = {field.name for field in dataclasses.fields(EngineConfig)} - {"model"}
    assert names == set(ENGINE_FIELDS)
    helps = {action.dest: action.help for action in parser._actions}
    for name in SAMPLING_FIELDS:
        assert len(helps[f"SamplingParams.{name}"]) > 10
    for name in ENGINE_FIELDS:
        words = helps[f"EngineConfig.{name}"]
        assert len(words) > 10
        others = [f" {other}: " for other in ENGINE_FIELDS]
        assert not any(o in words for o in others), "swallowed the next field"
