"""What each field of `EngineConfig` may hold, and which vLLM options are not built.

The ranges are vLLM's where it has any. `config` applies the tables; this module only
states them. Standard library only.
"""

import types
from collections.abc import Mapping
from typing import cast

from jengine.field_rules import (
    Rule,
    as_integer,
    boolean,
    integer,
    number,
    one_of,
    optional,
    path,
    text,
)

_DTYPE_NAMES: Mapping[str, str] = {
    "auto": "auto",
    "float32": "float32",
    "float": "float32",
    "bfloat16": "bfloat16",
    "float16": "float16",
    "half": "float16",
}


def _dtype_rule() -> Rule:
    def convert(value: object) -> str:
        name = value if isinstance(value, str) else _name_of_dtype(value)
        if name not in _DTYPE_NAMES:
            raise ValueError
        return _DTYPE_NAMES[name]

    names = "auto, float32 (float), bfloat16, float16 (half)"
    return Rule(f"{names}, or a dtype of these names", convert)


def _name_of_dtype(dtype: object) -> str:
    """Name a dtype of numpy, jax or torch without importing any of them."""
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None)
    return str(name or dtype).removeprefix("torch.")


def _max_model_len_rule() -> Rule:
    def convert(value: object) -> object:
        if value is None:
            return None
        if value == "auto":
            return "auto"
        kept = as_integer(value)
        return "auto" if kept == -1 else integer(1).convert(kept)

    return Rule("None, an integer of at least 1, or 'auto' (also written -1)", convert)


def _override_rule() -> Rule:
    def convert(value: object) -> object:
        given = {} if value is None else dict(cast("Mapping[str, object]", value))
        return types.MappingProxyType(given)

    return Rule("a dict of generation settings", convert)


def _cache_dir_rule() -> Rule:
    def convert(value: object) -> object:
        return value if value is None or value is False else path().convert(value)

    return Rule("None (the user's cache folder), a path, or False (off)", convert)


CONFIG_RULES: Mapping[str, Rule] = {
    "model": path(),
    "tokenizer": optional(path()),
    "tokenizer_mode": one_of("auto", "hf", "slow"),
    "skip_tokenizer_init": boolean(),
    "trust_remote_code": boolean(),
    "revision": optional(text()),
    "tokenizer_revision": optional(text()),
    "load_format": one_of("auto", "dummy"),
    "dtype": _dtype_rule(),
    "seed": integer(0, 2**64 - 1),
    "gpu_memory_utilization": number(0, 1, above_low=True),
    "kv_cache_memory_bytes": optional(integer(1)),
    "max_model_len": _max_model_len_rule(),
    "block_size": integer(1, 256),
    "num_gpu_blocks_override": optional(integer(2)),  # block 0 is the null block
    "enable_prefix_caching": boolean(),
    "enable_chunked_prefill": boolean(),
    "max_num_seqs": optional(integer(1)),
    "max_num_batched_tokens": optional(integer(1)),
    "long_prefill_token_threshold": integer(0),
    "scheduling_policy": one_of("fcfs", "priority"),
    "enforce_eager": boolean(),
    "async_scheduling": optional(boolean()),
    "max_logprobs": integer(-1),
    "logprobs_mode": one_of(
        "raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits"
    ),
    "stream_interval": integer(1),
    "generation_config": path(),
    "override_generation_config": _override_rule(),
    "chat_template": optional(path()),
    "disable_log_stats": boolean(),
    "attention_backend": one_of("auto", "xla", "pallas"),
    "warmup": optional(boolean()),
    "compilation_cache_dir": _cache_dir_rule(),
}

UNBUILT_OPTIONS: Mapping[str, tuple[object, ...]] = {
    "tensor_parallel_size": (1,),
    "pipeline_parallel_size": (1,),
    "data_parallel_size": (1,),
    "enable_expert_parallel": (False,),
    "distributed_executor_backend": (None,),
    "disable_custom_all_reduce": (False, True),
    "speculative_config": (None,),
    "structured_outputs_config": (None,),
    "kv_transfer_config": (None,),
    "logits_processors": (None, []),
    "quantization": (None,),
    "kv_cache_dtype": ("auto",),
    "calculate_kv_scales": (False,),
    "config_format": ("auto", "hf"),
    "download_dir": (None,),
    "code_revision": (None,),
    "hf_overrides": (None, {}),
    "hf_config_path": (None,),
    "hf_token": (None,),
    "rope_scaling": (None, {}),
    "rope_theta": (None,),
    "compilation_config": (None, {}),
    "enable_lora": (False,),
    "enable_sleep_mode": (False,),
    "swap_space": (0, 4),
    "cpu_offload_gb": (0,),
    "prefix_caching_hash_algo": ("sha256",),
    "watermark": (0.0,),
    "scheduler_reserve_full_isl": (True,),
    "scheduler_cls": (None,),
    "disable_sliding_window": (False,),
    "disable_cascade_attn": (False, True),
    "limit_mm_per_prompt": (None, {}),
    "mm_processor_kwargs": (None, {}),
    "allowed_local_media_path": ("",),
    "runner": ("auto", "generate"),
    "task": (None, "auto", "generate"),
    "convert": ("auto", "none"),
    "pooler_config": (None,),
    "served_model_name": (None,),
    "use_tqdm_on_load": (True, False),
    "allowed_media_domains": (None,),
    "attention_config": (None, {}),
    "enable_return_routed_experts": (False,),
    "offload_group_size": (0,),
    "offload_num_in_group": (1,),
    "offload_params": (None,),
    "offload_prefetch_step": (1,),
    "profiler_config": (None, {}),
    "quantization_config": (None,),
    "return_sampling_mask": (False,),
    "spec_method": (None,),
    "spec_model": (None,),
    "spec_tokens": (None,),
}
"""vLLM's options without a field here, with the values that ask for nothing."""
