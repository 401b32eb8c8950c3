"""From an opened checkpoint to a model's structure and its parameters in place."""

from typing import Any, NamedTuple

import jax

from jengine.checkpoint import Checkpoint, Target, iter_parameters
from jengine.runner.device import Device
from models.config import ModelConfig
from models.registry import abstract_parameters, nest, resolve


class LoadedModel(NamedTuple):
    """A model ready to run.

    Attributes:
      config: what the checkpoint's config says.
      graphdef: the module's static structure.
      params: parameters as a nested dict, on the device.
    """

    config: ModelConfig
    graphdef: Any
    params: dict[str, Any]


def load_model(
    checkpoint: Checkpoint, config: ModelConfig, dtype: str, device: Device
) -> LoadedModel:
    """Read all parameters and place them; none is ever left unset.

    Each is placed before the next is read, so that the host never holds them all
    beside the device.

    Raises:
      CheckpointError: a tensor is missing, left over or of another shape.
    """
    graphdef, shapes = abstract_parameters(config, dtype)
    sources = resolve(config.architecture).parameter_sources(config)
    targets = {
        path: Target(shape=struct.shape, names=sources[path])
        for path, struct in shapes.items()
    }
    placed = {
        path: jax.device_put(array, device)
        for path, array in iter_parameters(checkpoint, targets, dtype)
    }
    return LoadedModel(config, graphdef, nest(placed))
