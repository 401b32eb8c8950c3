"""A model with random weights, made on the device from a config alone: for benchmarks.

What a step costs does not depend on the weights' values, as long as they are not
zeros, and a file of 16 GB is no good way to come by random numbers.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jengine.runner.device import Device
from jengine.runner.load import LoadedModel
from models.config import ModelConfig
from models.registry import abstract_parameters, nest


def random_model(
    config: Mapping[str, Any],
    *,
    dtype: str,
    device: Device,
    std: float = 0.02,
    seed: int = 0,
) -> LoadedModel:
    """Make a model whose norms are 1, its biases 0 and its weights uniform.

    Args:
      config: content of a `config.json`.
      dtype: number format of all parameters.
      device: where they are made. Another kind of device makes other numbers.
      std: standard deviation of the weights.
      seed: of the weights.

    Raises:
      ModelConfigError: the config makes no sense.
      UnsupportedModelError: it asks for a model that is not implemented.
    """
    model_config = ModelConfig.from_hf(config)
    graphdef, shapes = abstract_parameters(model_config, dtype)
    # Not jax's default generator, which takes seconds for billions of numbers.
    keys = jax.random.split(jax.random.key(seed, impl="rbg"), len(shapes))
    with jax.default_device(device):
        params = {
            path: _make(path[-1], struct, key, std)
            for (path, struct), key in zip(shapes.items(), keys, strict=True)
        }
    # Committed, so that nothing moves it to where other arrays are.
    return LoadedModel(model_config, graphdef, jax.device_put(nest(params), device))


def place_model(model: LoadedModel, device: Device) -> LoadedModel:
    """Return the model with its parameters copied to a device."""
    return model._replace(params=jax.device_put(model.params, device))


def _make(kind: Any, struct: jax.ShapeDtypeStruct, key: jax.Array, std: float) -> Any:
    if kind == "scale":
        return jnp.ones(struct.shape, struct.dtype)
    if kind == "bias":
        return jnp.zeros(struct.shape, struct.dtype)
    most = std * 3**0.5  # of a uniform distribution with this deviation
    return jax.random.uniform(
        key, struct.shape, struct.dtype, minval=-most, maxval=most
    )
