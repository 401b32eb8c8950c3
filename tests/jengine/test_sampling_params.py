import copy
import dataclasses
import logging
import math
import pickle
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from jengine.errors import SamplingParamsError
from jengine.repetition_detection import RepetitionDetectionParams
from jengine.sampling_params import (
    RequestOutputKind,
    SamplingParams,
    check_with_model,
)

NUMBERS = [
    "temperature",
    "top_p",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
]
RUBBISH = {
    "nan": math.nan,
    "inf": math.inf,
    "minus inf": -math.inf,
    "text": "0.5",
    "list": [1],
    "bool": True,
    "beyond floats": 10**400,
}

REFUSED = [
    *(
        (f"{field} {name}", {field: v})
        for field in NUMBERS
        for name, v in RUBBISH.items()
    ),
    ("temperature negative", {"temperature": -0.1}),
    ("temperature 2.1", {"temperature": 2.1}),
    ("top_p 0", {"top_p": 0}),
    ("top_p above 1", {"top_p": 1.0001}),
    ("top_p -1", {"top_p": -1}),
    ("min_p -1", {"min_p": -1}),
    ("min_p above 1", {"min_p": 1.1}),
    ("presence -2.1", {"presence_penalty": -2.1}),
    ("frequency 2.1", {"frequency_penalty": 2.1}),
    ("repetition 0", {"repetition_penalty": 0}),
    ("repetition -1", {"repetition_penalty": -1}),
    ("top_k -2", {"top_k": -2}),
    ("top_k 1.5", {"top_k": 1.5}),
    ("top_k bool", {"top_k": True}),
    ("max_tokens 0", {"max_tokens": 0}),
    ("max_tokens -1", {"max_tokens": -1}),
    ("max_tokens 2.5", {"max_tokens": 2.5}),
    ("max_tokens text", {"max_tokens": "7"}),
    ("max_tokens bool", {"max_tokens": True}),
    ("min_tokens -1", {"min_tokens": -1}),
    ("min_tokens above max", {"min_tokens": 9, "max_tokens": 8}),
    ("n 0", {"n": 0}),
    ("n -1", {"n": -1}),
    ("n 16385", {"n": 16385}),
    ("seed 2**64", {"seed": 2**64}),
    ("seed below", {"seed": -(2**63) - 1}),
    ("seed 1.5", {"seed": 1.5}),
    ("seed bool", {"seed": True}),
    ("logprobs -2", {"logprobs": -2}),
    ("logprobs text", {"logprobs": "5"}),
    ("prompt_logprobs -2", {"prompt_logprobs": -2}),
    ("stop_token_ids negative", {"stop_token_ids": [-1]}),
    ("stop_token_ids float", {"stop_token_ids": [3.0]}),
    ("stop_token_ids bool", {"stop_token_ids": [True]}),
    ("stop_token_ids text", {"stop_token_ids": "3"}),
    ("stop_token_ids int", {"stop_token_ids": 3}),
    ("ignore_eos int", {"ignore_eos": 1}),
    ("detokenize text", {"detokenize": "yes"}),
    ("output_kind int", {"output_kind": 1}),
    ("logit_bias text key", {"logit_bias": {"x": 1}}),
    ("logit_bias negative key", {"logit_bias": {-1: 1}}),
    ("logit_bias nan", {"logit_bias": {5: math.nan}}),
    ("logit_bias inf", {"logit_bias": {5: math.inf}}),
    ("logit_bias list", {"logit_bias": [5]}),
    ("allowed_token_ids empty", {"allowed_token_ids": []}),
    ("allowed_token_ids negative", {"allowed_token_ids": [-1]}),
    ("logprob_token_ids too many", {"logprob_token_ids": list(range(129))}),
    ("bad_words empty word", {"bad_words": [""]}),
    ("stream_interval 0", {"stream_interval": 0}),
    ("truncate_prompt_tokens 0", {"truncate_prompt_tokens": 0}),
    ("extra_args list", {"extra_args": [1]}),
    ("stop without text", {"stop": "x", "detokenize": False}),
]


@pytest.mark.parametrize(
    "fields", [fields for _, fields in REFUSED], ids=[name for name, _ in REFUSED]
)
def test_bad_05_rubbish_is_refused_by_name(fields):
    with pytest.raises(SamplingParamsError) as caught:
        SamplingParams(**fields)
    assert caught.value.field in fields
    assert str(caught.value).startswith(f"{caught.value.field} is ")


def test_bad_05_unknown_keyword():
    with pytest.raises(TypeError, match="temprature"):
        SamplingParams(temprature=1)


@pytest.mark.parametrize(
    "field",
    sorted(
        {f.name for f in dataclasses.fields(SamplingParams)} - {"max_tokens"},
    ),
)
def test_bad_05_none_means_default(field):
    fields: dict[str, Any] = {field: None}
    assert SamplingParams(**fields) == SamplingParams()


def test_max_tokens_none_is_kept():
    assert SamplingParams(max_tokens=None).max_tokens is None
    assert SamplingParams(max_tokens=None, min_tokens=100).min_tokens == 100


@pytest.mark.parametrize(("given", "kept"), [(5, 5), (-1, -1), (None, None)])
def test_truncation_may_be_left_to_the_engine(given, kept):
    params = SamplingParams(truncate_prompt_tokens=given)
    assert params.truncate_prompt_tokens == kept


def test_listed_ids_ask_for_the_sampled_one_too():
    assert SamplingParams(logprob_token_ids=[1]).num_reported == 0
    assert SamplingParams(logprob_token_ids=[1], logprobs=3).num_reported == 3
    assert SamplingParams(logprob_token_ids=[]).num_reported is None


def test_values_for_plug_ins_are_kept():
    params = SamplingParams(extra_args={"a": [1]})
    assert params.extra_args == {"a": [1]}
    assert isinstance(hash(params), int)


def test_defaults_are_those_of_vllm():
    params = SamplingParams()
    assert (params.n, params.temperature, params.top_p) == (1, 1.0, 1.0)
    assert (params.top_k, params.min_p, params.max_tokens) == (0, 0.0, 16)
    assert (params.seed, params.logprobs, params.stop) == (None, None, ())
    assert params.output_kind is RequestOutputKind.CUMULATIVE
    assert not params.is_greedy


@pytest.mark.parametrize("temperature", [0, -0.0, 1e-40, 1e-12, 1e-6, 9.9e-6])
def test_smp_01_next_to_zero_is_greedy(temperature):
    params = SamplingParams(temperature=temperature, top_p=0.9, top_k=5, min_p=0.1)
    assert params == SamplingParams(temperature=0.0)
    assert params.is_greedy
    assert (params.top_p, params.top_k, params.min_p) == (1.0, 0, 0.0)


@pytest.mark.parametrize("temperature", [1e-5, 1e-3, 0.0099])
def test_smp_01_tiny_temperature_is_raised_and_said(temperature, caplog):
    with caplog.at_level(logging.WARNING, logger="jengine"):
        params = SamplingParams(temperature=temperature, top_p=0.9)
    assert (params.temperature, params.top_p) == (0.01, 0.9)
    assert "raised to 0.01" in caplog.text


def test_smp_01_ordinary_temperature_is_kept_in_silence(caplog):
    assert SamplingParams(temperature=0.01).temperature == 0.01
    assert caplog.text == ""


@pytest.mark.parametrize(
    "stop",
    ["", [""], ["", "x"], [None], [3], 3, b"x", {"a": 1}],
    ids=repr,
)
def test_stp_04_odd_stop_values_are_refused(stop):
    with pytest.raises(SamplingParamsError, match=r"^stop is "):
        SamplingParams(stop=stop)


@pytest.mark.parametrize(
    ("stop", "kept"),
    [
        ([], ()),
        (None, ()),
        ("x" * 10_000, ("x" * 10_000,)),
        (["a", "b"], ("a", "b")),
        (("a", "a"), ("a", "a")),
        ([str(i) for i in range(50)], tuple(str(i) for i in range(50))),
    ],
    ids=["empty", "None", "long", "list", "tuple", "fifty"],
)
def test_stp_04_other_stop_values_are_kept(stop, kept):
    assert SamplingParams(stop=stop).stop == kept


def test_stop_token_ids_lose_duplicates_and_keep_their_order():
    given = [5, np.int32(3), 5, 3]
    assert SamplingParams(stop_token_ids=given).stop_token_ids == (5, 3)


@pytest.mark.parametrize(
    ("seed", "kept"),
    [(-1, None), (0, 0), (2**64 - 1, 2**64 - 1), (-(2**63), -(2**63)), (-2, -2)],
)
def test_seed(seed, kept):
    assert SamplingParams(seed=seed).seed == kept


@pytest.mark.parametrize(
    ("given", "kept"), [(True, 1), (False, None), (0, 0), (-1, -1), (20, 20)]
)
def test_logprobs(given, kept):
    assert SamplingParams(logprobs=given).logprobs == kept


def test_it_is_frozen_and_usable_as_a_key():
    params = SamplingParams(stop=["a"])
    with pytest.raises(dataclasses.FrozenInstanceError):
        params.top_p = 0.5
    assert {params: 1}[SamplingParams(stop="a")] == 1


def test_the_callers_list_is_copied():
    stop = ["a"]
    params = SamplingParams(stop=stop)
    stop.append("b")
    assert params.stop == ("a",)


SUPPORTED = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.floats(0.01, 2) | st.just(0.0),
        "top_p": st.floats(0.001, 1),
        "top_k": st.integers(-1, 10**9),
        "min_p": st.floats(0, 1),
        "seed": st.none() | st.integers(-(2**63), 2**64 - 1),
        "stop": st.lists(st.text(min_size=1), max_size=3) | st.text(min_size=1),
        "stop_token_ids": st.lists(st.integers(0, 10**6), max_size=3),
        "ignore_eos": st.booleans(),
        "max_tokens": st.none() | st.integers(8, 10**9),
        "min_tokens": st.integers(0, 8),
        "logprobs": st.none() | st.integers(-1, 100) | st.booleans(),
        "skip_special_tokens": st.booleans(),
        "spaces_between_special_tokens": st.booleans(),
        "include_stop_str_in_output": st.booleans(),
        "output_kind": st.sampled_from(RequestOutputKind),
        "logit_bias": st.dictionaries(st.integers(0, 99), st.floats(-9, 9), max_size=3),
        "bad_words": st.lists(st.text(min_size=1), max_size=2),
        "repetition_detection": st.just({"max_pattern_size": 3}),
        "extra_args": st.just({"a": [1]}),
    },
)


@hypothesis.given(SUPPORTED)
def test_the_normal_form_is_stable_in_every_way_of_copying(fields):
    params = SamplingParams(**fields)
    names = [field.name for field in dataclasses.fields(params)]
    again = SamplingParams(**{name: getattr(params, name) for name in names})
    assert params == again
    assert params == params.clone()
    assert params == pickle.loads(pickle.dumps(params)) == copy.deepcopy(params)
    assert hash(params) == hash(again)


@hypothesis.given(SUPPORTED)
def test_printed_form_makes_an_equal_object(fields):
    params = SamplingParams(**fields)
    kinds = (SamplingParams, RequestOutputKind, RepetitionDetectionParams)
    assert eval(repr(params), {kind.__name__: kind for kind in kinds}) == params


def test_from_optional_reads_json_forms():
    params = SamplingParams.from_optional(temperature=None, stop=None, max_tokens=3)
    assert params == SamplingParams(max_tokens=3)
    params = SamplingParams.from_optional(logit_bias={"5": 1e9, 6: -math.inf})
    assert params.logit_bias == {5: 100.0, 6: -100.0}
    assert isinstance(hash(params), int)
    with pytest.raises(SamplingParamsError, match="logit_bias"):
        SamplingParams.from_optional(logit_bias={"x": 1})
    with pytest.raises(SamplingParamsError, match="logit_bias"):
        SamplingParams.from_optional(logit_bias={"5": math.nan})


def test_smp_07_generation_config_gives_the_defaults():
    config = {
        "temperature": 0.6,
        "top_k": 2,
        "max_new_tokens": 40,
        "top_p": None,
        "eos_token_id": [2, 7],
        "do_sample": True,
    }
    expected = SamplingParams(temperature=0.6, top_k=2, max_tokens=40)
    assert SamplingParams.from_generation_config(config) == expected
    assert SamplingParams.from_generation_config({}) == SamplingParams()


@pytest.mark.parametrize(
    ("fields", "limits", "named"),
    [
        ({"stop_token_ids": [3, 320]}, {}, "stop_token_ids is 320"),
        ({"stop": "x"}, {"has_tokenizer": False}, "stop is"),
        ({"logprobs": 21}, {}, "logprobs is 21"),
        ({"logprobs": -1}, {}, "logprobs is -1"),
        ({"logprobs": 321}, {"max_logprobs": -1}, "logprobs is 321"),
    ],
    ids=["stp_05 id V", "no tokenizer", "above cap", "all above cap", "above V"],
)
def test_what_only_the_engine_can_refuse(fields, limits, named):
    given = {"vocab_size": 320, "max_logprobs": 20} | limits
    with pytest.raises(SamplingParamsError, match=named):
        check_with_model(SamplingParams(**fields), **given)


@pytest.mark.parametrize(
    ("fields", "limits"),
    [
        ({"stop_token_ids": [319], "logprobs": 20, "stop": "x"}, {}),
        ({"logprobs": -1}, {"max_logprobs": -1}),
        ({"logprobs": -1}, {"max_logprobs": 320}),
        ({"logprobs": 320}, {"max_logprobs": -1}),
        ({"logprobs": 0}, {"max_logprobs": 0}),
    ],
)
def test_what_the_engine_accepts(fields, limits):
    given = {"vocab_size": 320, "max_logprobs": 20} | limits
    check_with_model(SamplingParams(**fields), **given)
