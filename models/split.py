"""How a decoder of the Llama family is split over devices: tensor parallelism.

Each device holds some heads, some features of the MLP and some ids of the
vocabulary, and runs the same module on sizes that are smaller by the number of
devices (`local_config`). Sums over what is split are completed by the modules whose
axis `connect` names: two a layer, one for the embedding.

Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3.
"""

import dataclasses
from typing import Any, NamedTuple

from models.config import ModelConfig, UnsupportedModelError

Path = tuple[str | int, ...]


class ParameterSplit(NamedTuple):
    """How one parameter is split.

    Attributes:
      axis: the axis that is cut into as many pieces as there are devices.
      parts: lengths of what was joined on that axis; each part is cut on its own, so
        that a device gets its share of queries, keys and values.
    """

    axis: int
    parts: tuple[int, ...]


def local_config(config: ModelConfig, shards: int) -> ModelConfig:
    """Return what one device runs.

    Raises:
      UnsupportedModelError: a size does not divide by the number of devices.
    """
    sizes = {
        "num_heads": config.num_heads,
        "num_kv_heads": config.num_kv_heads,
        "intermediate_size": config.intermediate_size,
        "vocab_size": config.vocab_size,
    }
    uneven = [f"{name} = {size}" for name, size in sizes.items() if size % shards]
    if uneven:
        raise UnsupportedModelError(
            f"the model cannot be split over {shards} devices: {', '.join(uneven)} "
            f"{'is' if len(uneven) == 1 else 'are'} not divisible by {shards}"
        )
    return dataclasses.replace(
        config, **{name: size // shards for name, size in sizes.items()}
    )


def connect(model: Any, axis: str) -> None:
    """Name the mesh axis in the modules that complete a sum over it.

    Args:
      model: built from a `local_config`; changed in place.
      axis: name of the axis.
    """
    model.embed.split_over = axis
    for layer in model.layers:
        layer.attention.o.sum_over = axis
        layer.mlp.down.sum_over = axis


def parameter_split(config: ModelConfig, path: Path) -> ParameterSplit | None:
    """Return how a parameter is split; None where every device holds all of it.

    Args:
      config: the whole model.
      path: the parameter's path, as in `llama.parameter_sources`.
    """
    queries = config.num_heads * config.head_dim
    keys = config.num_kv_heads * config.head_dim
    inner, vocab = config.intermediate_size, config.vocab_size
    match path:
        case ("embed" | "lm_head", "weight"):
            return ParameterSplit(0, (vocab,))
        case ("layers", _, "attention", "qkv", _):
            return ParameterSplit(0, (queries, keys, keys))
        case ("layers", _, "mlp", "gate_up", _):
            return ParameterSplit(0, (inner, inner))
        case ("layers", _, "attention", "o", "weight"):
            return ParameterSplit(1, (queries,))
        case ("layers", _, "mlp", "down", "weight"):
            return ParameterSplit(1, (inner,))
    return None  # norms, and biases that are added after a sum is complete
