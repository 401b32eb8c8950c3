"""Checkpoint files hold what was given, in the dtype that the config names."""

import json
import pathlib

import numpy as np
import pytest
from safetensors.numpy import load_file

from jengine.testing.checkpoint_files import (
    config_entries,
    numpy_dtype,
    write_checkpoint,
)


def test_short_names() -> None:
    entries = config_entries({"num_layers": 3, "tie": True, "rope_theta": 1.0})
    assert entries == {
        "num_hidden_layers": 3,
        "tie_word_embeddings": True,
        "rope_theta": 1.0,
    }


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_files(tmp_path: pathlib.Path, dtype: str) -> None:
    values = np.array([[1.0, 2.5], [-3.0, 0.0]], dtype=np.float32)
    root = write_checkpoint(
        tmp_path / "new" / "folder",
        {"torch_dtype": dtype},
        {"a.weight": values.T},
        generation_config={"eos_token_id": [2, 7]},
    )
    assert json.loads((root / "config.json").read_text()) == {"torch_dtype": dtype}
    generation = json.loads((root / "generation_config.json").read_text())
    assert generation == {"eos_token_id": [2, 7]}
    (stored,) = load_file(root / "model.safetensors").values()
    assert stored.dtype == numpy_dtype(dtype)
    np.testing.assert_array_equal(stored.astype(np.float32), values.T)


def test_no_generation_config(tmp_path: pathlib.Path) -> None:
    write_checkpoint(tmp_path, {"torch_dtype": "float32"}, {"a": np.zeros(1)})
    assert not (tmp_path / "generation_config.json").exists()


def test_unknown_dtype() -> None:
    with pytest.raises(ValueError, match="use float32, float16 or bfloat16"):
        numpy_dtype("float8")
