"""Puts an engine together from a config: checkpoint, tokenizer, model, pool, parts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jengine.checkpoint import Checkpoint, open_checkpoint
from jengine.checkpoint.safetensors_reader import read_json
from jengine.config import EngineConfig, ModelLimits, ResolvedConfig, resolve
from jengine.core.scheduler import Scheduler
from jengine.engine import LLMEngine
from jengine.errors import ConfigError, UnsupportedError
from jengine.input_processor import (
    EndTokens,
    InputLimits,
    InputProcessor,
    find_end_tokens,
)
from jengine.output_processor import OutputProcessor
from jengine.runner.build import (
    build_runner,
    default_device,
    parse_config,
    read_config,
)
from jengine.runner.device import compute_capability
from jengine.runner.runner import ModelRunner
from jengine.sampling_rules import GENERATION_CONFIG_FIELDS
from jengine.structured_output.manager import GrammarBackend, GrammarManager
from jengine.text.tokenizer import Tokenizer, load_tokenizer

_OVERRIDABLE = frozenset({*GENERATION_CONFIG_FIELDS, "eos_token_id"})


class Assembled(NamedTuple):
    """A new engine and what its front door needs besides.

    Attributes:
      engine: ready for requests.
      config: what was decided.
      generation_config: the default sampling values in force, as a dict.
    """

    engine: LLMEngine
    config: ResolvedConfig
    generation_config: dict[str, Any]


def assemble(config: EngineConfig) -> Assembled:
    """Load a model and build an engine for it.

    Raises:
      ConfigError: options that contradict each other, the model or the memory.
      CheckpointError: the checkpoint cannot be used.
      UnsupportedError: jengine cannot run this model.
    """
    checkpoint = open_checkpoint(
        config.model,
        revision=config.revision,
        trust_remote_code=config.trust_remote_code,
        check_config=parse_config,
        with_weights=config.load_format != "dummy",
    )
    model_config = read_config(checkpoint)
    device = default_device()
    resolved = resolve(
        config,
        ModelLimits(
            vocab_size=model_config.vocab_size,
            max_position_embeddings=model_config.max_position_embeddings,
            dtype=model_config.dtype,
            platform=device.platform,
            compute_capability=compute_capability(device),
        ),
    )
    generation_config = _generation_config(config, checkpoint)
    tokenizer = _load_tokenizer(config, checkpoint)
    runner = build_runner(checkpoint, model_config, resolved, device)
    named = {**checkpoint.generation_config, **generation_config}
    eos = None if tokenizer is None else tokenizer.eos_token_id
    end_tokens = find_end_tokens(checkpoint.config, named, eos)
    engine = _connect(resolved, runner, tokenizer, end_tokens)
    if resolved.warmup:
        runner.warm_up()
    return Assembled(engine, resolved, generation_config)


def _connect(
    resolved: ResolvedConfig,
    runner: ModelRunner,
    tokenizer: Tokenizer | None,
    end_tokens: EndTokens,
) -> LLMEngine:
    scheduler = Scheduler(
        num_blocks=runner.limits.num_blocks,
        block_size=resolved.block_size,
        token_budget=resolved.max_num_batched_tokens,
        max_num_seqs=resolved.max_num_seqs,
        enable_prefix_caching=resolved.enable_prefix_caching,
        enable_chunked_prefill=resolved.enable_chunked_prefill,
        long_prefill_token_threshold=resolved.long_prefill_token_threshold,
        policy=resolved.scheduling_policy,
    )
    limits = InputLimits(
        vocab_size=resolved.vocab_size,
        max_model_len=runner.limits.max_model_len,
        max_sequence_tokens=scheduler.max_sequence_tokens,
        max_logprobs=resolved.max_logprobs,
        seed=resolved.seed,
    )
    return LLMEngine(
        scheduler,
        runner,
        InputProcessor(limits, end_tokens, tokenizer),
        OutputProcessor(tokenizer, stream_interval=resolved.asked.stream_interval),
        grammars=_grammars(tokenizer, resolved.vocab_size, end_tokens),
        async_scheduling=resolved.async_scheduling,
    )


def _grammars(
    tokenizer: Tokenizer | None, vocab_size: int, end_tokens: EndTokens
) -> GrammarManager | None:
    if tokenizer is None:
        return None
    ends = sorted(end_tokens.within(vocab_size).all)
    return GrammarManager(lambda: _guidance(tokenizer, vocab_size, ends))


def _guidance(
    tokenizer: Tokenizer, vocab_size: int, eos_token_ids: list[int]
) -> GrammarBackend:
    # Imported with the first grammar: images for GPUs often lack llguidance.
    try:
        from jengine.structured_output.guidance import GuidanceGrammars
    except ModuleNotFoundError as error:
        if error.name != "llguidance":
            raise
        raise UnsupportedError(
            "structured outputs need llguidance, which is not installed: "
            "pip install llguidance"
        ) from error
    return GuidanceGrammars(
        tokenizer, vocab_size=vocab_size, eos_token_ids=eos_token_ids
    )


def _load_tokenizer(config: EngineConfig, checkpoint: Checkpoint) -> Tokenizer | None:
    if config.skip_tokenizer_init:
        return None
    own = config.tokenizer is None
    return load_tokenizer(
        config.tokenizer or checkpoint.tokenizer_path,
        gguf_file=checkpoint.gguf_file if own else None,
        mode=config.tokenizer_mode,
        revision=None if own else config.tokenizer_revision,
        trust_remote_code=config.trust_remote_code,
    )


def _generation_config(config: EngineConfig, checkpoint: Checkpoint) -> dict[str, Any]:
    """Find the default sampling values: a checkpoint's, a folder's, or none."""
    found: Mapping[str, Any] = {}
    if config.generation_config == "auto":
        found = checkpoint.generation_config
    elif config.generation_config != "vllm":
        found = _read_generation_config(Path(config.generation_config))
    for key in config.override_generation_config:
        if key not in _OVERRIDABLE:
            allowed = ", ".join(sorted(_OVERRIDABLE))
            raise ConfigError("a key of override_generation_config", key, allowed)
    return {**found, **config.override_generation_config}


def _read_generation_config(folder: Path) -> Mapping[str, Any]:
    path = folder / "generation_config.json"
    if not path.is_file():
        raise ConfigError(
            "generation_config",
            str(folder),
            "'auto', 'vllm', or a folder that holds generation_config.json",
        )
    return read_json(path)
