"""From an architecture's name to its module and the tensors that fill it."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx, traverse_util

from models import llama
from models.config import SUPPORTED_ARCHITECTURES, ModelConfig, check_architecture

Path = llama.Path


@dataclasses.dataclass(frozen=True, slots=True)
class ModelFamily:
    """How to make the models of one family.

    Attributes:
      build: (config, dtype) to a module whose parameters are zeros; called under
        `jax.eval_shape`, so nothing is allocated.
      parameter_sources: config to the checkpoint tensors of each parameter, which
        are concatenated on axis 0.
    """

    build: Callable[[ModelConfig, jnp.dtype], nnx.Module]
    parameter_sources: Callable[[ModelConfig], dict[Path, tuple[str, ...]]]


def _build_llama(config: ModelConfig, dtype: jnp.dtype) -> nnx.Module:
    return llama.Llama(config, dtype=dtype)


_LLAMA = ModelFamily(build=_build_llama, parameter_sources=llama.parameter_sources)
_FAMILIES: Mapping[str, ModelFamily] = dict.fromkeys(SUPPORTED_ARCHITECTURES, _LLAMA)


def resolve(architecture: str) -> ModelFamily:
    """Return the family of an architecture, such as "LlamaForCausalLM".

    Raises:
      UnsupportedModelError: listing the architectures that are supported.
    """
    check_architecture(architecture)
    return _FAMILIES[architecture]


def abstract_parameters(
    config: ModelConfig, dtype: Any
) -> tuple[nnx.GraphDef, dict[Path, jax.ShapeDtypeStruct]]:
    """Return a model without its numbers; allocates nothing.

    Args:
      config: the model.
      dtype: number format of all parameters, in any spelling that jax takes.

    Returns:
      The static structure, which is hashable, and the shape of each parameter.
    """
    family = resolve(config.architecture)
    module = nnx.eval_shape(lambda: family.build(config, jnp.dtype(dtype)))
    graphdef, state = nnx.split(module)
    shapes: dict[Any, Any] = traverse_util.flatten_dict(nnx.to_pure_dict(state))
    return graphdef, shapes


def nest(parameters: Mapping[Path, Any]) -> dict[str, Any]:
    """Return parameters by path as the nested dict that crosses the jit border."""
    return traverse_util.unflatten_dict(dict(parameters))


def bind(graphdef: nnx.GraphDef, params: dict[str, Any]) -> Any:
    """Return the module with these parameters; call it inside the traced function."""
    return nnx.merge(graphdef, params)


def head_weight(params: dict[str, Any]) -> Any:
    """Return the weight `[V, M]` that turns hidden states into logits.

    Args:
      params: the nested dict of all parameters.
    """
    return params["lm_head" if "lm_head" in params else "embed"]["weight"]
