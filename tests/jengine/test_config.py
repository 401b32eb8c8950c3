import dataclasses
import math
import pathlib
from typing import Any

import hypothesis
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from jengine.config import EngineConfig, ModelLimits, resolve
from jengine.errors import ConfigError, UnsupportedError

LIMITS = ModelLimits(
    vocab_size=320, max_position_embeddings=512, dtype="float32", platform="cpu"
)


def decide(**options: Any):
    return resolve(EngineConfig(model="m", **options), LIMITS)


REFUSED: list[tuple[str, Any]] = [
    ("model", ""),
    ("model", None),
    ("model", 3),
    ("tokenizer_mode", "fast"),
    ("skip_tokenizer_init", 1),
    ("load_format", "pickle"),
    ("load_format", True),
    ("dtype", "int8"),
    ("dtype", "fp32"),
    ("dtype", np.int32),
    ("seed", -1),
    ("seed", 2**64),
    ("seed", 1.5),
    ("gpu_memory_utilization", 0),
    ("gpu_memory_utilization", 1.01),
    ("gpu_memory_utilization", math.nan),
    ("kv_cache_memory_bytes", 0),
    ("max_model_len", 0),
    ("max_model_len", -2),
    ("max_model_len", "long"),
    ("max_model_len", True),
    ("block_size", 0),
    ("block_size", 257),
    ("block_size", 16.0),
    ("num_gpu_blocks_override", 0),
    ("num_gpu_blocks_override", 1),
    ("enable_prefix_caching", "yes"),
    ("max_num_seqs", 0),
    ("max_num_batched_tokens", 0),
    ("long_prefill_token_threshold", -1),
    ("scheduling_policy", "lifo"),
    ("async_scheduling", 1),
    ("max_logprobs", -2),
    ("logprobs_mode", "logits"),
    ("override_generation_config", 3),
    ("attention_backend", "cuda"),
    ("compilation_cache_dir", True),
]


@pytest.mark.parametrize(("field", "value"), REFUSED, ids=lambda v: str(v)[:30])
def test_bad_values_are_refused_by_name(field, value):
    with pytest.raises(ConfigError) as caught:
        EngineConfig(**({"model": "m"} | {field: value}))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("field", "given", "kept"),
    [
        ("model", pathlib.PurePosixPath("a/b"), "a/b"),
        ("dtype", "half", "float16"),
        ("dtype", "float", "float32"),
        ("dtype", jnp.bfloat16, "bfloat16"),
        ("dtype", np.dtype("float32"), "float32"),
        ("max_model_len", -1, "auto"),
        ("max_model_len", "auto", "auto"),
        ("gpu_memory_utilization", 1, 1.0),
        ("compilation_cache_dir", False, False),
        ("compilation_cache_dir", pathlib.PurePosixPath("c"), "c"),
        ("block_size", None, 16),
        ("scheduling_policy", None, "fcfs"),
    ],
    ids=lambda v: str(v)[:30],
)
def test_values_are_kept_in_one_form(field, given, kept):
    config = EngineConfig(**({"model": "m"} | {field: given}))
    assert getattr(config, field) == kept


def test_override_generation_config_cannot_be_changed_from_outside():
    settings = {"top_k": 5}
    config = EngineConfig(model="m", override_generation_config=settings)
    settings["top_k"] = 6
    assert config.override_generation_config == {"top_k": 5}
    with pytest.raises(TypeError):
        config.override_generation_config["top_k"] = 7
    assert isinstance(hash(config), int)


@pytest.mark.parametrize(
    ("asked", "platform", "capability", "decided"),
    [
        ("auto", "cpu", None, "xla"),
        ("auto", "gpu", (9, 0), "pallas"),
        ("auto", "gpu", (8, 0), "pallas"),
        ("auto", "gpu", (7, 5), "xla"),
        ("auto", "gpu", None, "xla"),  # not NVIDIA's
        ("xla", "gpu", (9, 0), "xla"),
        ("pallas", "gpu", (8, 9), "pallas"),
        ("pallas", "cpu", None, "pallas"),
    ],
)
def test_attention_backend(asked, platform, capability, decided):
    limits = dataclasses.replace(
        LIMITS, platform=platform, compute_capability=capability
    )
    config = EngineConfig(model="m", attention_backend=asked)
    assert resolve(config, limits).attention_backend == decided


@pytest.mark.parametrize("capability", [(7, 5), None])
def test_pallas_needs_a_gpu_that_has_it(capability):
    limits = dataclasses.replace(LIMITS, platform="gpu", compute_capability=capability)
    config = EngineConfig(model="m", attention_backend="pallas")
    with pytest.raises(ConfigError, match=r"attention_backend.*8\.0 or newer"):
        resolve(config, limits)


def test_an_option_of_requests_says_where_it_goes():
    with pytest.raises(ConfigError, match=r"max_tokens is 8; .*of SamplingParams"):
        EngineConfig.from_options("m", {"max_tokens": 8})


def test_unknown_option_lists_close_names():
    with pytest.raises(ConfigError, match=r"Did you mean .*max_num_seqs"):
        EngineConfig.from_options("m", {"max_num_seq": 3})
    with pytest.raises(ConfigError, match=r"none of them$"):
        EngineConfig.from_options("m", {"zzzzqqqq": 3})


@pytest.mark.parametrize(
    "options",
    [
        {"tensor_parallel_size": 1, "quantization": None, "swap_space": 4},
        {"speculative_config": None, "hf_overrides": {}, "quantization": None},
        {},
    ],
)
def test_vllm_options_that_ask_for_nothing_are_accepted(options):
    assert EngineConfig.from_options("m", options) == EngineConfig(model="m")


@pytest.mark.parametrize(
    "options",
    [
        {"tensor_parallel_size": 2},
        {"tensor_parallel_size": True},
        {"speculative_config": {"method": "ngram"}},
        {"quantization": "awq"},
        {"enable_lora": True},
    ],
)
def test_vllm_options_that_ask_for_something_are_never_ignored(options):
    with pytest.raises(UnsupportedError, match=next(iter(options))):
        EngineConfig.from_options("m", options)


def test_options_reach_their_fields():
    config = EngineConfig.from_options("m", {"block_size": 8, "enforce_eager": True})
    assert (config.model, config.block_size, config.enforce_eager) == ("m", 8, True)


@pytest.mark.parametrize(
    ("platform", "seqs", "budget", "warmup"),
    [("cpu", 128, 2048, False), ("gpu", 256, 8192, True)],
)
def test_defaults_depend_on_the_platform(platform, seqs, budget, warmup):
    limits = dataclasses.replace(LIMITS, platform=platform)
    resolved = resolve(EngineConfig(model="m"), limits)
    assert resolved.max_num_seqs == seqs
    assert resolved.max_num_batched_tokens == budget
    assert resolved.warmup is warmup
    assert resolved.async_scheduling is True
    assert resolved.max_model_len == 512
    assert resolved.max_blocks_per_request == 32


@pytest.mark.parametrize(
    ("asked", "checkpoint", "platform", "decided"),
    [
        ("auto", "bfloat16", "cpu", "float32"),
        ("auto", "float32", "gpu", "bfloat16"),
        ("auto", "float16", "gpu", "float16"),
        ("auto", None, "gpu", "bfloat16"),
        ("float32", "bfloat16", "gpu", "float32"),
        ("bfloat16", "float32", "cpu", "bfloat16"),
    ],
)
def test_dtype(asked, checkpoint, platform, decided):
    limits = dataclasses.replace(LIMITS, dtype=checkpoint, platform=platform)
    assert resolve(EngineConfig(model="m", dtype=asked), limits).dtype == decided


def test_max_model_len_above_the_model_names_both_numbers():
    with pytest.raises(ConfigError, match=r"513.*512"):
        decide(max_model_len=513)
    assert decide(max_model_len=512).max_model_len == 512


def test_auto_max_model_len_may_be_lowered_later():
    assert decide(max_model_len="auto").fit_max_model_len
    assert decide(max_model_len="auto").max_model_len == 512
    assert not decide().fit_max_model_len


def test_small_budget_lowers_the_default_of_max_num_seqs():
    resolved = decide(max_num_batched_tokens=16)
    assert (resolved.max_num_batched_tokens, resolved.max_num_seqs) == (16, 16)


def test_budget_below_max_num_seqs_is_refused():
    with pytest.raises(ConfigError, match="at least max_num_seqs = 17"):
        decide(max_num_batched_tokens=16, max_num_seqs=17)


def test_many_rows_raise_the_default_budget():
    assert decide(max_num_seqs=3000).max_num_batched_tokens == 3000


def test_default_budget_is_no_larger_than_all_rows_can_use():
    assert decide(max_num_seqs=2, max_model_len=64).max_num_batched_tokens == 128


def test_without_chunking_a_whole_prompt_must_fit_the_budget():
    with pytest.raises(ConfigError, match="at least max_model_len = 512"):
        decide(enable_chunked_prefill=False, max_num_batched_tokens=511)
    long = dataclasses.replace(LIMITS, max_position_embeddings=4096)
    config = EngineConfig(model="m", enable_chunked_prefill=False)
    assert resolve(config, long).max_num_batched_tokens == 4096


def test_threshold_above_max_model_len_is_refused():
    with pytest.raises(ConfigError, match="max_model_len = 512"):
        decide(long_prefill_token_threshold=513)
    assert decide(long_prefill_token_threshold=512).long_prefill_token_threshold == 512


def test_eager_needs_no_warmup():
    assert decide(warmup=True, enforce_eager=True).warmup is False
    assert decide(warmup=True).warmup is True
    assert decide(async_scheduling=False).async_scheduling is False


@hypothesis.given(
    st.none() | st.integers(1, 600),
    st.none() | st.integers(1, 5000),
    st.booleans(),
    st.none() | st.integers(1, 512),
)
def test_whatever_resolves_is_consistent(seqs, budget, chunked, length):
    config = EngineConfig(
        model="m",
        max_num_seqs=seqs,
        max_num_batched_tokens=budget,
        enable_chunked_prefill=chunked,
        max_model_len=length,
    )
    least = max(seqs or 0, 0 if chunked else (length or 512))
    if budget is not None and budget < least:
        with pytest.raises(ConfigError) as caught:
            resolve(config, LIMITS)
        assert caught.value.field == "max_num_batched_tokens"
        return
    resolved = resolve(config, LIMITS)
    assert resolved.max_num_seqs == seqs if seqs else resolved.max_num_seqs <= 128
    assert resolved.max_num_batched_tokens >= resolved.max_num_seqs
    assert chunked or resolved.max_num_batched_tokens >= resolved.max_model_len
    assert budget in (None, resolved.max_num_batched_tokens)
