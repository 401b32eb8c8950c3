"""Decides what an engine on a card would compile: sizes, buckets, programs.

All that a survey rests on is computed as the engine computes it, from the card's
description in place of the device.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax.numpy as jnp

from jengine.aot.cost import ModelSizes, StepShape, model_sizes
from jengine.aot.facts import LayerCost
from jengine.aot.request import SurveyRequest
from jengine.aot.targets import Target, find_target
from jengine.config import EngineConfig, ModelLimits, ResolvedConfig, resolve
from jengine.errors import CheckpointError, ConfigError, UnsupportedError
from jengine.logprobs import LogprobsMode
from jengine.runner.bucket import FEWEST_ROWS_ON_GPU, Buckets, make_buckets
from jengine.runner.build import decide_num_blocks
from jengine.runner.cache import block_bytes
from jengine.runner.program_keys import (
    DecodeKey,
    ForwardKey,
    SampleKey,
    StepKey,
    all_keys,
)
from models.config import ModelConfig, ModelConfigError, UnsupportedModelError
from models.registry import abstract_parameters
from models.split import local_config, parameter_split


class Survey(NamedTuple):
    """What there is to compile.

    Attributes:
      request: what was asked.
      target: the card.
      model: the model.
      resolved: the engine's options, decided.
      sizes: the model's parameters, counted.
      weight_bytes: bytes of the parameters on each card.
      kv_block_bytes: bytes of a KV block on each card.
      num_blocks: KV blocks, the null block included.
      max_model_len: longest request that the pool holds.
      buckets: padded sizes.
      keys: all programs, in the order in which they are numbered.
    """

    request: SurveyRequest
    target: Target
    model: ModelConfig
    resolved: ResolvedConfig
    sizes: ModelSizes
    weight_bytes: int
    kv_block_bytes: int
    num_blocks: int
    max_model_len: int
    buckets: Buckets
    keys: tuple[StepKey, ...]

    @property
    def itemsize(self) -> int:
        """Bytes of a parameter and of a number in the cache."""
        return jnp.dtype(self.resolved.dtype).itemsize

    @property
    def pool_tokens(self) -> int:
        """Tokens that the KV pool holds."""
        return (self.num_blocks - 1) * self.resolved.block_size

    @property
    def kv_bytes(self) -> int:
        """Bytes of the KV pool on each card."""
        return self.num_blocks * self.kv_block_bytes


def plan_survey(request: SurveyRequest) -> Survey:
    """Decide what there is to compile; touches no device.

    Raises:
      ConfigError: an unknown card, options that contradict each other, or a model
        that does not fit.
      CheckpointError: the model's config makes no sense.
      UnsupportedError: jengine cannot run this model, or not over so many cards.
    """
    target = find_target(request.target)
    model = read_model(request)
    resolved = _resolve(request, model, target)
    weights = weight_bytes(model, resolved.dtype, request.tensor_parallel_size)
    block = block_bytes(model, resolved.block_size, resolved.dtype)
    block //= request.tensor_parallel_size
    num_blocks = _num_blocks(resolved, target, weights, block)
    max_model_len = min(resolved.max_model_len, (num_blocks - 1) * resolved.block_size)
    buckets = make_buckets(
        max_num_seqs=resolved.max_num_seqs,
        token_budget=resolved.max_num_batched_tokens,
        max_blocks=-(-max_model_len // resolved.block_size),
        fewest_rows=FEWEST_ROWS_ON_GPU,
    )
    asked = resolved.max_logprobs
    max_logprobs = model.vocab_size if asked == -1 else min(asked, model.vocab_size)
    return Survey(
        request=request,
        target=target,
        model=model,
        resolved=resolved,
        sizes=model_sizes(model),
        weight_bytes=weights,
        kv_block_bytes=block,
        num_blocks=num_blocks,
        max_model_len=max_model_len,
        buckets=buckets,
        keys=_step_keys(buckets, max_logprobs, resolved.asked.logprobs_mode),
    )


def read_model(request: SurveyRequest) -> ModelConfig:
    """Parse the model's config, and check that it can be split as asked.

    Raises:
      CheckpointError: the config makes no sense.
      UnsupportedError: jengine cannot run this model, or not over so many cards.
    """
    try:
        model = ModelConfig.from_hf(dict(request.config))
        local_config(model, request.tensor_parallel_size)
    except UnsupportedModelError as error:
        raise UnsupportedError(f"{request.model}: {error}") from error
    except ModelConfigError as error:
        raise CheckpointError(f"{request.model}: {error}") from error
    return model


def shallow(model: ModelConfig, layers: int | None) -> ModelConfig:
    """Return the model with fewer layers, all of them of one kind.

    A model whose layers differ in their windows keeps all of them.
    """
    windows = model.sliding_windows
    if layers is None or layers >= model.num_layers or len(set(windows)) > 1:
        return model
    return dataclasses.replace(
        model, num_layers=layers, sliding_windows=windows[:layers]
    )


def weight_bytes(model: ModelConfig, dtype: str, shards: int) -> int:
    """Return the bytes of a model's parameters on each of several cards."""
    _, shapes = abstract_parameters(model, dtype)
    return sum(
        math.prod(shape.shape)
        * shape.dtype.itemsize
        // (1 if parameter_split(model, path) is None else shards)
        for path, shape in shapes.items()
    )


def layer_cost(survey: Survey) -> LayerCost:
    """Return what one more layer adds to a program."""
    model, dtype = survey.model, survey.resolved.dtype
    shards = survey.request.tensor_parallel_size
    bare = dataclasses.replace(model, num_layers=0, sliding_windows=())
    all_layers = survey.weight_bytes - weight_bytes(bare, dtype, shards)
    return LayerCost(
        weight_bytes=all_layers // model.num_layers,
        kv_bytes=survey.kv_bytes // model.num_layers,
        collectives={} if shards == 1 else {"all-reduce": 2},
    )


def _step_keys(
    buckets: Buckets, max_logprobs: int, values: LogprobsMode
) -> tuple[StepKey, ...]:
    """Return the programs that a step is made of.

    What sets up a seat, or reports on a prompt, is small and runs none of the layers.
    """
    keys = all_keys(buckets, max_logprobs, values)
    return tuple(key for key in keys if isinstance(key, StepKey))


def program_kind(key: StepKey) -> str:
    """Return "decode", "forward" (one token a row), "mixed" or "sample"."""
    match key:
        case DecodeKey():
            return "decode"
        case SampleKey():
            return "sample"
        case ForwardKey(bucket):
            return "forward" if bucket.single_token_rows else "mixed"


def step_shape(survey: Survey, key: StepKey) -> StepShape:
    """Return what the roofline supposes that a program runs."""
    match key:
        case SampleKey(rows, _):
            return StepShape(0, rows, None)
        case ForwardKey(bucket) if not bucket.single_token_rows:
            return StepShape(bucket.tokens, 0, None)
        case ForwardKey(bucket) | DecodeKey(bucket, _):
            rows = bucket.rows
    logit_rows = rows if isinstance(key, DecodeKey) else 0
    return StepShape(rows, logit_rows, context_of(survey, rows))


def context_of(survey: Survey, rows: int) -> int:
    """Return the tokens that each of so many rows can have at once."""
    most = min(survey.max_model_len, survey.pool_tokens // rows)
    return min(survey.request.context, most)


def _resolve(
    request: SurveyRequest, model: ModelConfig, target: Target
) -> ResolvedConfig:
    options: dict[str, Any] = dict(request.options)
    return resolve(
        EngineConfig.from_options(request.model, options),
        ModelLimits(
            vocab_size=model.vocab_size,
            max_position_embeddings=model.max_position_embeddings,
            dtype=model.dtype,
            platform="gpu",
            compute_capability=target.compute_capability,
        ),
    )


def _num_blocks(
    resolved: ResolvedConfig, target: Target, weights: int, block: int
) -> int:
    share = resolved.asked.gpu_memory_utilization
    usable = int(target.memory_bytes * share)
    if weights + 2 * block > usable:
        raise ConfigError(
            "the model",
            f"{_gib(weights)} of weights and at least {_gib(2 * block)} of KV cache",
            f"at most {_gib(usable)} on each {target.name}, {share:g} of its"
            f" {_gib(target.memory_bytes)}",
            "Use a larger card, or more of them (--tensor-parallel-size).",
        )
    return decide_num_blocks(resolved, block_bytes=block, memory_bytes=usable - weights)


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def device_shape(survey: Survey) -> tuple[int, ...]:
    """Return the shape of one layer's keys on each card."""
    heads = survey.model.num_kv_heads // survey.request.tensor_parallel_size
    block_size = survey.resolved.block_size
    return (survey.num_blocks, heads, block_size, survey.model.head_dim)
