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
from jengine.structured_outputs import StructuredOutputsParams


@pytest.fixture
def parser():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_sampling_flags(parser, max_tokens="9")
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
    ("--max-tokens none", {"max_tokens": None}),
    ("--n 3", {"n": 3}),
    (
        "--presence-penalty 1 --frequency-penalty -1 --repetition-penalty 1.5",
        {
            "presence_penalty": 1.0,
            "frequency_penalty": -1.0,
            "repetition_penalty": 1.5,
        },
    ),
    ('--logit-bias {"5":-100,"7":2.5}', {"logit_bias": {5: -100, 7: 2.5}}),
    ("--allowed-token-ids 1 2", {"allowed_token_ids": [1, 2]}),
    ("--bad-words a --bad-words b", {"bad_words": ["a", "b"]}),
    (
        '--structured-outputs {"choice":["a","b"]}',
        {"structured_outputs": StructuredOutputsParams(choice=["a", "b"])},
    ),
    ("--no-detokenize", {"detokenize": False}),
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


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("--logit-bias [3]", "is no JSON object from token ids to numbers"),
        ('--logit-bias {"a":3}', "is no JSON object from token ids to numbers"),
        ("--logit-bias {", "is no JSON"),
        ("--structured-outputs {}", "allowed: exactly one of"),
        ("--structured-outputs 3", "is no JSON object"),
        ('--structured-outputs {"chioce":["a"]}', "chioce"),
        ("--override-generation-config x", "is no JSON"),
        ("--max-model-len x", "'x' is no whole number, nor 'auto'"),
        ("--max-tokens 1.5", "'1.5' is no whole number, nor 'none'"),
    ],
)
def test_values_that_cannot_be_read(parser, capsys, line, named):
    with pytest.raises(SystemExit):
        parser.parse_args(line.split())
    assert named in capsys.readouterr().err


def test_every_field_has_a_flag_with_help(parser):
    names = {field.name for field in dataclasses.fields(EngineConfig)} - {"model"}
    assert names == set(ENGINE_FIELDS)
    names = {field.name for field in dataclasses.fields(SamplingParams)}
    left_out = {"output_kind", "flat_logprobs", "guided_decoding"}
    assert names - left_out == set(SAMPLING_FIELDS)
    helps = {action.dest: action.help for action in parser._actions}
    for name in SAMPLING_FIELDS:
        words = helps[f"SamplingParams.{name}"]
        assert len(words) > 10
        others = [f" {other}: " for other in SAMPLING_FIELDS]
        assert not any(o in words for o in others), "swallowed the next field"
    for name in ENGINE_FIELDS:
        words = helps[f"EngineConfig.{name}"]
        assert len(words) > 10
        others = [f" {other}: " for other in ENGINE_FIELDS]
        assert not any(o in words for o in others), "swallowed the next field"
