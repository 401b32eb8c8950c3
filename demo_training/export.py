"""Writes a trained model as a Hugging Face checkpoint."""

from pathlib import Path
from typing import Any

import numpy as np
from flax import nnx

from jengine.testing.checkpoint_files import write_checkpoint
from models.llama import Llama, parameter_sources


def export(
    model: Llama,
    config: dict[str, Any],
    generation_config: dict[str, Any],
    folder: Path,
) -> None:
    """Write config.json, generation_config.json and model.safetensors in bfloat16.

    Args:
      model: whose parameters are joined as `parameter_sources` says.
      config: content of config.json.
      generation_config: content of generation_config.json.
      folder: made if missing.
    """
    parameters = dict(nnx.to_flat_state(nnx.state(model, nnx.Param)))
    tensors = {}
    for path, names in parameter_sources(model.config).items():
        joined = np.asarray(parameters[path][...])
        sizes = [_rows(model, name, joined.shape[0]) for name in names]
        parts = np.split(joined, np.cumsum(sizes)[:-1])
        tensors.update(zip(names, parts, strict=True))
    write_checkpoint(folder, config, tensors, generation_config=generation_config)


def _rows(model: Llama, name: str, all_rows: int) -> int:
    """Return how many rows of its parameter a tensor makes."""
    config = model.config
    head_widths = {
        "q_proj": config.num_heads * config.head_dim,
        "k_proj": config.num_kv_heads * config.head_dim,
        "v_proj": config.num_kv_heads * config.head_dim,
        "gate_proj": config.intermediate_size,
        "up_proj": config.intermediate_size,
    }
    return head_widths.get(name.split(".")[-2], all_rows)
