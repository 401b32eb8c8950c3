"""Write the files of a tiny Hugging Face checkpoint directory.

Everything here is deterministic: the same arguments give the same bytes.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

SHORT_NAMES = {
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "tie": "tie_word_embeddings",
    "dtype": "torch_dtype",
}
"""Short forms of config.json entries that the writers of checkpoints accept."""


def config_entries(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Spell the short names out as config.json does."""
    return {SHORT_NAMES.get(name, name): value for name, value in overrides.items()}


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a mapping as indented JSON, keys in the order given."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def write_checkpoint(
    directory: str | Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray],
    *,
    generation_config: Mapping[str, Any] | None = None,
) -> Path:
    """Write config.json, model.safetensors and, if given, generation_config.json.

    Args:
      directory: made if missing; other files in it are left alone.
      config: the content of config.json; its `torch_dtype` is the dtype on disk.
      tensors: float arrays by Hugging Face parameter name.
      generation_config: the content of generation_config.json, or None for no file.

    Returns:
      The directory.
    """
    from safetensors.numpy import save_file

    root = Path(directory)
    root.mkdir(parents=True, exist_ok=True)
    write_json(root / "config.json", config)
    if generation_config is not None:
        write_json(root / "generation_config.json", generation_config)
    dtype = numpy_dtype(str(config["torch_dtype"]))
    stored = {name: np.ascontiguousarray(a, dtype=dtype) for name, a in tensors.items()}
    save_file(stored, root / "model.safetensors", metadata={"format": "pt"})
    return root


def numpy_dtype(name: str) -> np.dtype:
    """Return the numpy dtype of a torch dtype name.

    Raises:
      ValueError: for any name but float32, float16 and bfloat16.
    """
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    if name in ("float32", "float16"):
        return np.dtype(name)
    raise ValueError(f"dtype {name!r}: use float32, float16 or bfloat16")
