"""What docs/coming-from-vllm.md says, as far as it can be said by a line of code."""

import dataclasses
import pathlib

import pytest

import jengine
from jengine import EngineConfig, GuidedDecodingParams, SamplingParams
from jengine.config_rules import UNBUILT_OPTIONS
from jengine.errors import ConfigError, UnsupportedError

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "coming-from-vllm.md"
if not PAGE.is_file():
    pytest.skip("only in a checkout", allow_module_level=True)
TEXT = PAGE.read_text("utf-8")


def config(**options):
    return EngineConfig.from_options("m", options)


@pytest.mark.parametrize(
    "name", ["SamplingParams", "StructuredOutputsParams", "TextPrompt", "TokensPrompt"]
)
def test_public_names_that_are_the_same(name):
    assert f"`{name}`" in TEXT
    assert getattr(jengine, name)


@pytest.mark.parametrize(
    "name",
    [
        "generate",
        "chat",
        "get_tokenizer",
        "get_default_sampling_params",
        "get_metrics",
        "reset_prefix_cache",
    ],
)
def test_methods_that_are_the_same(name):
    assert f"`{name}`" in TEXT
    assert callable(getattr(jengine.LLM, name))


@pytest.mark.parametrize(
    "option",
    [
        {"enable_chunked_prefill": False},
        {"long_prefill_token_threshold": 4},
        {"num_gpu_blocks_override": 9},
        {"generation_config": "vllm"},
        {"logprobs_mode": "raw_logits"},
        {"stream_interval": 2},
        {"async_scheduling": False},
    ],
    ids=str,
)
def test_options_that_are_the_same(option):
    ((name, value),) = option.items()
    assert f"`{name}" in TEXT
    assert getattr(config(**option), name) == value


@pytest.mark.parametrize("name", ["best_of", "use_beam_search", "logits_processors"])
def test_arguments_that_are_gone(name):
    assert name in TEXT
    with pytest.raises(TypeError, match=name):
        SamplingParams(**{name: 1})


@pytest.mark.parametrize(
    "name",
    [
        "guided_decoding_backend",
        "num_scheduler_steps",
        "preemption_mode",
        "disable_log_requests",
    ],
)
def test_options_that_are_gone(name):
    assert f"`{name}`" in TEXT
    with pytest.raises(ConfigError, match=name):
        config(**{name: 1})


@pytest.mark.parametrize(
    "name",
    ["swap_space", "disable_custom_all_reduce", "disable_cascade_attn",
     "use_tqdm_on_load"],
)  # fmt: skip
def test_options_without_effect(name):
    assert name in TEXT
    for value in UNBUILT_OPTIONS[name]:
        assert config(**{name: value}) == config()
    with pytest.raises(UnsupportedError, match=name):
        config(**{name: 17})


def test_an_older_name_of_structured_output():
    from jengine.sampling_params import GuidedDecodingParams as Elsewhere

    assert Elsewhere is GuidedDecodingParams
    kept = SamplingParams(guided_decoding=GuidedDecodingParams(regex="a"))
    assert kept.structured_outputs == GuidedDecodingParams(regex="a")
    assert kept.guided_decoding is None


def test_parameters_are_immutable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SamplingParams().n = 2
    assert SamplingParams(temperature=0, n=2).n == 2


@pytest.mark.parametrize(
    "name",
    ["embed", "score", "classify", "encode", "reward", "beam_search", "collective_rpc",
     "apply_model", "start_profile"],
)  # fmt: skip
def test_methods_that_are_not_there(name):
    assert name in TEXT
    llm = jengine.LLM.__new__(jengine.LLM)  # no model is needed to be told
    assert not hasattr(llm, name)
    with pytest.raises(UnsupportedError, match=name):
        getattr(llm, name)
