import math

import pytest

from models.errors import ModelConfigError, UnsupportedModelError
from models.rope_config import ROPE_TYPES, RopeConfig, rope_from_hf

LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
PARAMETERS = {
    "default": {},
    "linear": {"factor": 2.0},
    "dynamic": {"factor": 2},
    "llama3": LLAMA3,
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 32},
    "frequency_factors": {"frequency_factors": [1.0, 8.0]},
}


def read(**keys) -> RopeConfig:
    return rope_from_hf({"max_position_embeddings": 128, **keys})


def test_every_type_is_tried_here():
    assert set(PARAMETERS) == set(ROPE_TYPES)


@pytest.mark.parametrize("kind", PARAMETERS)
def test_ckp_04_all_spellings_mean_the_same(kind):
    inside = PARAMETERS[kind]
    found = {
        read(rope_parameters={"rope_theta": 5e5, "rope_type": kind, **inside}),
        read(rope_parameters={"rope_type": kind, **inside}, rope_theta=5e5),
        read(rope_scaling={"type": kind, **inside}, rope_theta=5e5),
        read(rope_scaling={"rope_type": kind, **inside}, rope_theta=500000),
        read(rope_scaling={"rope_type": kind, "type": "foo", **inside}, rope_theta=5e5),
    }
    assert len(found) == 1
    (rope,) = found
    assert (rope.rope_type, rope.theta) == (kind, 5e5)


def test_nothing_said_is_default():
    assert read() == read(rope_scaling=None) == read(rope_scaling={}) == RopeConfig()
    assert read().theta == 10_000


def test_precedence_is_that_of_transformers():
    both = read(
        rope_theta=1e6,
        rope_scaling={"type": "linear", "factor": 2.0},
        rope_parameters={"rope_type": "linear", "factor": 3.0, "rope_theta": 7.0},
    )
    assert (both.factor, both.theta) == (2.0, 1e6)
    inside = read(rope_theta=1e6, rope_parameters={"rope_theta": 7.0})
    assert inside.theta == 7.0


def test_llama3_values_arrive():
    rope = read(rope_scaling={"rope_type": "llama3", **LLAMA3})
    assert (rope.factor, rope.low_freq_factor, rope.high_freq_factor) == (8, 1, 4)
    assert rope.original_max_position_embeddings == 16


@pytest.mark.parametrize("kind", ["llama3", "yarn"])
def test_original_length_falls_back_and_outer_key_wins(kind):
    inside = {**PARAMETERS[kind], "rope_type": kind}
    outer = read(rope_scaling=inside, original_max_position_embeddings=24)
    assert outer.original_max_position_embeddings == 24
    del inside["original_max_position_embeddings"]
    assert read(rope_scaling=inside).original_max_position_embeddings == 128


def yarn(**inside) -> RopeConfig:
    return read(rope_scaling={"rope_type": "yarn", **PARAMETERS["yarn"], **inside})


def test_yarn_attention_factor():
    assert yarn().attention_factor == pytest.approx(0.1 * math.log(4) + 1)
    assert yarn(factor=1.0).attention_factor == 1
    assert yarn(attention_factor=0.7).attention_factor == 0.7
    pair = yarn(mscale=0.5, mscale_all_dim=2.0).attention_factor
    assert pair == pytest.approx((0.05 * math.log(4) + 1) / (0.2 * math.log(4) + 1))
    assert yarn(mscale=0.5).attention_factor == yarn().attention_factor


def test_yarn_options_and_defaults():
    assert (yarn().beta_fast, yarn().beta_slow, yarn().truncate) == (32, 1, True)
    other = yarn(beta_fast=16, beta_slow=2, truncate=False)
    assert (other.beta_fast, other.beta_slow, other.truncate) == (16, 2, False)
    assert yarn(factor=None).factor == 4.0  # 128 over 32


def test_ckp_04_unknown_type_lists_the_known():
    with pytest.raises(UnsupportedModelError, match=r"'foo'.*llama3, yarn"):
        read(rope_scaling={"type": "foo", "factor": 2.0})


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0, "alpha": 1e3}}, "'alpha'"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "full_"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
    ],
)
def test_what_would_change_the_meaning_is_refused(keys, named):
    with pytest.raises(UnsupportedModelError, match=named):
        read(**keys)


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling.factor is missing"),
        ({"rope_scaling": {"type": "linear", "factor": "2"}}, "rope_scaling.factor"),
        ({"rope_scaling": [1]}, "rope_scaling"),
        ({"rope_theta": "1e4"}, "rope_theta"),
        ({"rope_scaling": {"type": 3}}, "rope_scaling.type"),
        (
            {"rope_scaling": {"rope_type": "llama3", **LLAMA3, "high_freq_factor": 1}},
            "high_freq_factor is 1; it must be above",
        ),
        (
            {
                "rope_scaling": {
                    "type": "frequency_factors",
                    "frequency_factors": [-1.0],
                }
            },
            "frequency_factors",
        ),
    ],
)
def test_bad_values_are_named(keys, named):
    with pytest.raises(ModelConfigError, match=named):
        read(**keys)
