"""`EngineConfig`, what was asked, and `resolve`, which decides all that it left open.

Both objects are frozen and nothing patches them later. The size of the KV pool is not
decided here: it depends on memory that only the runner can measure. Standard library
only.
"""

import dataclasses
import difflib
import types
from collections.abc import Mapping
from typing import Any, Literal, no_type_check

from jengine.config_rules import CONFIG_RULES, UNBUILT_OPTIONS
from jengine.errors import ConfigError, UnsupportedError
from jengine.field_rules import apply_rules
from jengine.logprobs import LogprobsMode
from jengine.sampling_rules import SAMPLING_RULES


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
@no_type_check  # it checks its own fields, and says more than a type checker would
class EngineConfig:
    """The options of an engine, as they were asked for; names and defaults are vLLM's.

    Attributes:
      model: folder or .gguf file of a checkpoint, or its name on the hub.
      tokenizer: where the tokenizer is, if not with the model.
      tokenizer_mode: "auto", or "slow" for the tokenizer written in Python.
      skip_tokenizer_init: load no tokenizer; prompts are ids and outputs have no text.
      trust_remote_code: let the tokenizer run code that came with the checkpoint.
      revision: version of the checkpoint on the hub.
      tokenizer_revision: version of the tokenizer on the hub.
      load_format: "auto" reads the weights, whatever files they are in; "dummy" makes
        random ones, for benchmarks, and of a folder or on the hub needs none of those
        files.
      dtype: "float32", "bfloat16", "float16"; "auto" is float32 on a CPU, elsewhere
        the checkpoint's own, or bfloat16 where that is float32.
      seed: requests without a seed draw theirs from this one.
      gpu_memory_utilization: share of the device's memory that the engine may use.
      kv_cache_memory_bytes: exact size of the KV cache instead of that share.
      max_model_len: longest prompt plus output in tokens; None is what the model was
        made for, "auto" as much of it as fits into memory.
      block_size: tokens in a KV block.
      num_gpu_blocks_override: exact number of KV blocks, the null block included.
      enable_prefix_caching: keep full blocks for prompts that start alike.
      enable_chunked_prefill: let a step take part of a prompt.
      max_num_seqs: most requests that run at once; None is 256, on a CPU 128.
      max_num_batched_tokens: token budget of a step; None is 8192, on a CPU 2048.
      long_prefill_token_threshold: most tokens of one request in a step; 0 is off.
      scheduling_policy: "fcfs" or "priority".
      enforce_eager: compile nothing ahead of its first use.
      async_scheduling: dispatch a step before the last one's tokens are read; None
        is True.
      max_logprobs: most logprobs that a request may ask for; -1 is no cap.
      logprobs_mode: which values logprobs are: "raw_logprobs", "raw_logits",
        "processed_logprobs" (after penalties, masks, temperature and filters) or
        "processed_logits".
      stream_interval: least number of tokens between two streamed outputs.
      generation_config: where default sampling values and further end-of-sequence ids
        come from: "auto" the checkpoint, "vllm" nowhere, or a folder.
      override_generation_config: settings laid over those.
      chat_template: template text, or a file that holds it.
      disable_log_stats: as in vLLM, without effect: statistics are in `LLM.stats`
        either way, and nothing is logged from time to time.
      attention_backend: "pallas", kernels for NVIDIA GPUs of compute capability 8.0
        or newer, which a CPU interprets, slowly; "xla", which runs everywhere; "auto"
        is pallas on such GPUs and xla elsewhere.
      warmup: compile every bucket at the start; None does so on accelerators only.
      compilation_cache_dir: where compiled programs are kept; None is the user's cache
        folder, False keeps none.

    Raises:
      ConfigError: a value is not allowed.
      UnsupportedError: the value is fine, but its feature is not built yet.
    """

    model: str
    tokenizer: str | None = None
    tokenizer_mode: str = "auto"
    skip_tokenizer_init: bool = False
    trust_remote_code: bool = False
    revision: str | None = None
    tokenizer_revision: str | None = None
    load_format: str = "auto"
    dtype: str = "auto"
    seed: int = 0
    gpu_memory_utilization: float = 0.92
    kv_cache_memory_bytes: int | None = None
    max_model_len: int | Literal["auto"] | None = None
    block_size: int = 16
    num_gpu_blocks_override: int | None = None
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    long_prefill_token_threshold: int = 0
    scheduling_policy: str = "fcfs"
    enforce_eager: bool = False
    async_scheduling: bool | None = None
    max_logprobs: int = 20
    logprobs_mode: LogprobsMode = "raw_logprobs"
    stream_interval: int = 1
    generation_config: str = "auto"
    override_generation_config: Mapping[str, Any] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType({}), hash=False
    )
    chat_template: str | None = None
    disable_log_stats: bool = True
    attention_backend: str = "auto"
    warmup: bool | None = None
    compilation_cache_dir: str | Literal[False] | None = None

    def __post_init__(self) -> None:
        """Check what was given and keep its normal form."""
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        given = {name: getattr(self, name) for name in CONFIG_RULES}
        for name, value in given.items():
            if value is None and defaults[name] is not dataclasses.MISSING:
                given[name] = defaults[name]
        for name, value in apply_rules(CONFIG_RULES, given, ConfigError).items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_options(cls, model: object, options: Mapping[str, Any]) -> "EngineConfig":
        """Make a config from the keyword arguments of `LLM`.

        An option of vLLM that jengine has not built is accepted while its value asks
        for nothing.

        Raises:
          ConfigError: an option is unknown, or its value is not allowed.
          UnsupportedError: an option asks for something that is not built yet.
        """
        fields = {field.name for field in dataclasses.fields(cls)} - {"model"}
        for name, value in options.items():
            if name in UNBUILT_OPTIONS:
                _refuse_unbuilt(name, value)
            elif name not in fields:
                raise _unknown_option(name, value, fields)
        known = {name: value for name, value in options.items() if name in fields}
        return cls(model=model, **known)  # pyright: ignore[reportArgumentType]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelLimits:
    """What `resolve` needs to know of the model and of the machine.

    Attributes:
      vocab_size: number of logits.
      max_position_embeddings: positions that the model was made for.
      dtype: the checkpoint's dtype; None where it names none.
      platform: jax's word for the device: "cpu", "gpu".
      compute_capability: of an NVIDIA GPU; None for any other device.
    """

    vocab_size: int
    max_position_embeddings: int
    dtype: str | None
    platform: str
    compute_capability: tuple[int, int] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedConfig:
    """What was decided: nothing is left open but the size of the KV pool.

    Attributes are those of `EngineConfig` unless they are listed here.

    Attributes:
      asked: the config that all this was decided from.
      vocab_size: number of logits of the model.
      platform: jax's word for the device.
      fit_max_model_len: whether the runner may lower `max_model_len` to what fits
        into memory; otherwise it must refuse a pool that is too small.
    """

    asked: EngineConfig
    vocab_size: int
    platform: str
    dtype: str
    max_model_len: int
    fit_max_model_len: bool
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    long_prefill_token_threshold: int
    enable_prefix_caching: bool
    enable_chunked_prefill: bool
    scheduling_policy: str
    async_scheduling: bool
    attention_backend: str
    warmup: bool
    max_logprobs: int
    seed: int

    @property
    def max_blocks_per_request(self) -> int:
        """Blocks that the longest possible request holds."""
        return -(-self.max_model_len // self.block_size)


def resolve(config: EngineConfig, limits: ModelLimits) -> ResolvedConfig:
    """Decide what `config` left open, for one model on one machine.

    Raises:
      ConfigError: two options, or an option and the model, contradict each other.
    """
    max_model_len = _decide_max_model_len(config, limits)
    max_num_seqs = _decide_max_num_seqs(config, limits)
    on_accelerator = limits.platform != "cpu"
    warmup = on_accelerator if config.warmup is None else config.warmup
    return ResolvedConfig(
        asked=config,
        vocab_size=limits.vocab_size,
        platform=limits.platform,
        dtype=_decide_dtype(config, limits),
        max_model_len=max_model_len,
        fit_max_model_len=config.max_model_len == "auto",
        block_size=config.block_size,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=_decide_token_budget(
            config, limits, max_num_seqs, max_model_len
        ),
        long_prefill_token_threshold=_check_threshold(config, max_model_len),
        enable_prefix_caching=config.enable_prefix_caching,
        enable_chunked_prefill=config.enable_chunked_prefill,
        scheduling_policy=config.scheduling_policy,
        async_scheduling=config.async_scheduling is not False,
        attention_backend=_decide_attention_backend(config, limits),
        warmup=warmup and not config.enforce_eager,
        max_logprobs=config.max_logprobs,
        seed=config.seed,
    )


def _decide_dtype(config: EngineConfig, limits: ModelLimits) -> str:
    if config.dtype != "auto":
        return config.dtype
    if limits.platform == "cpu":
        return "float32"  # XLA's bfloat16 products are several times slower there
    return limits.dtype if limits.dtype in ("bfloat16", "float16") else "bfloat16"


def _decide_attention_backend(config: EngineConfig, limits: ModelLimits) -> str:
    capability = limits.compute_capability
    has_kernels = capability is not None and capability >= (8, 0)
    if config.attention_backend == "auto":
        return "pallas" if has_kernels else "xla"
    is_real_device = limits.platform != "cpu"  # a CPU interprets the kernels
    if config.attention_backend == "pallas" and is_real_device and not has_kernels:
        found = "none" if capability is None else "{}.{}".format(*capability)
        raise ConfigError(
            "attention_backend",
            "pallas",
            "'auto' or 'xla' on this device",
            "The kernels need an NVIDIA GPU of compute capability 8.0 or newer; this "
            f"device has {found}.",
        )
    return config.attention_backend


def _decide_max_model_len(config: EngineConfig, limits: ModelLimits) -> int:
    asked, most = config.max_model_len, limits.max_position_embeddings
    if asked is None or asked == "auto":
        return most
    if asked > most:
        raise ConfigError(
            "max_model_len", asked, f"at most {most}, the positions of the model"
        )
    return asked


def _decide_max_num_seqs(config: EngineConfig, limits: ModelLimits) -> int:
    if config.max_num_seqs is not None:
        return config.max_num_seqs
    default = 128 if limits.platform == "cpu" else 256
    budget = config.max_num_batched_tokens
    return default if budget is None else min(default, budget)


def _decide_token_budget(
    config: EngineConfig, limits: ModelLimits, max_num_seqs: int, max_model_len: int
) -> int:
    least = max_num_seqs
    if not config.enable_chunked_prefill:
        least = max(least, max_model_len)
    asked = config.max_num_batched_tokens
    if asked is None:
        default = 2048 if limits.platform == "cpu" else 8192
        return max(least, min(default, max_num_seqs * max_model_len))
    if asked < max_num_seqs:
        raise ConfigError(
            "max_num_batched_tokens",
            asked,
            f"at least max_num_seqs = {max_num_seqs}",
            "Each running request needs one token of the budget.",
        )
    if asked < least:
        raise ConfigError(
            "max_num_batched_tokens",
            asked,
            f"at least max_model_len = {max_model_len} without chunked prefill",
            "Turn enable_chunked_prefill on, or lower max_model_len.",
        )
    return asked


def _check_threshold(config: EngineConfig, max_model_len: int) -> int:
    threshold = config.long_prefill_token_threshold
    if threshold > max_model_len:
        raise ConfigError(
            "long_prefill_token_threshold",
            threshold,
            f"at most max_model_len = {max_model_len}; 0 is off",
        )
    return threshold


def _refuse_unbuilt(name: str, value: object) -> None:
    neutral = UNBUILT_OPTIONS[name]
    if not any(type(value) is type(n) and value == n for n in neutral):
        raise UnsupportedError(
            f"{name}={value!r} is not supported yet; leave it out, or at {neutral[0]!r}"
        )


def _unknown_option(name: str, value: object, fields: set[str]) -> ConfigError:
    close = difflib.get_close_matches(name, sorted(fields), n=3)
    hint = f"Did you mean {' or '.join(close)}?" if close else None
    if name in SAMPLING_RULES:
        hint = "It is a field of SamplingParams, which each request has."
    allowed = "the options of EngineConfig; this is none of them"
    return ConfigError(name, value, allowed, hint)
