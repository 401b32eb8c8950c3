"""One checkpoint in the forms that the engines read: an HF folder and a GGUF file.

Only jengine and llama.cpp read GGUF well. So a GGUF checkpoint is written once, with
its weights dequantised to float32, as safetensors with a config.json, and as a GGUF of
float32 where llama.cpp takes part: all engines then compute with the same values.
"""

import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from jengine.checkpoint import Checkpoint, open_checkpoint
from jengine.errors import CheckpointError, UnsupportedError

_MODEL_TYPES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
_FORMAT = 1  # of what is written; a new one writes it anew


def hf_folder(model: str, cache: pathlib.Path) -> pathlib.Path:
    """Return a folder with config.json and safetensors that holds a checkpoint.

    A model that is not a GGUF file is that folder already, or is fetched from the hub.

    Args:
      model: a folder, a `.gguf` file or a name on the hub.
      cache: where converted checkpoints are kept.

    Raises:
      CheckpointError: there is no such checkpoint, or it is damaged.
      UnsupportedError: an HF config cannot say what the GGUF file says.
    """
    checkpoint = open_checkpoint(model)
    if checkpoint.gguf_file is None:
        return pathlib.Path(checkpoint.path)
    folder = cache / _key(pathlib.Path(checkpoint.path)) / "hf"
    if not folder.is_dir():
        _write_whole(folder, lambda place: _write_hf(checkpoint, place))
    return folder


def float32_gguf(model: str, cache: pathlib.Path) -> pathlib.Path | None:
    """Return a GGUF file whose weights are float32; None if the model is no GGUF.

    Raises:
      CheckpointError: the file is damaged.
    """
    path = pathlib.Path(model)
    if path.suffix.lower() != ".gguf":
        return None
    folder = cache / _key(path) / "gguf"
    if not folder.is_dir():
        _write_whole(folder, lambda place: _write_gguf(path, place / "model.gguf"))
    return folder / "model.gguf"


def vocab_size_of(folder: pathlib.Path) -> int:
    """Return the number of ids that a checkpoint's config names."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    return int(config["vocab_size"])


def _key(path: pathlib.Path) -> str:
    """Return a folder's name for a file as it is now."""
    about = path.stat()
    text = f"{_FORMAT} {path.resolve()} {about.st_size} {about.st_mtime_ns}"
    return f"{path.stem}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _write_whole(folder: pathlib.Path, write: Any) -> None:
    """Write a folder that is complete once it is there."""
    beside = folder.with_name(f"{folder.name}.{os.getpid()}")
    beside.mkdir(parents=True)
    try:
        write(beside)
        if not folder.is_dir():  # else somebody was faster
            beside.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _write_hf(checkpoint: Checkpoint, place: pathlib.Path) -> None:
    config = hf_config(checkpoint.config)
    tensors = {
        name: np.ascontiguousarray(checkpoint.tensors.read(name), dtype=np.float32)
        for name in checkpoint.tensors.names()
    }
    save_file(tensors, place / "model.safetensors", metadata={"format": "pt"})
    (place / "config.json").write_text(json.dumps(config, indent=1), "utf-8")
    (place / "generation_config.json").write_text(
        json.dumps(dict(checkpoint.generation_config), indent=1), "utf-8"
    )


def hf_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Complete a config made of GGUF metadata to what transformers reads.

    Raises:
      UnsupportedError: it has no equal there.
    """
    (architecture,) = config["architectures"]
    rope = config["rope_parameters"]
    if rope["rope_type"] == "frequency_factors":
        raise UnsupportedError(
            "this GGUF stores its rope scaling as factors, which config.json cannot "
            "say; give the original checkpoint instead"
        )
    model_type = _MODEL_TYPES.get(architecture)
    if model_type is None:
        raise CheckpointError(f"{architecture} cannot be written as an HF folder")
    # Readers older than transformers 5 look for the theta at the top.
    theta = {"rope_theta": rope["rope_theta"]}
    return {**config, **theta, "model_type": model_type, "torch_dtype": "float32"}


def _write_gguf(source: pathlib.Path, target: pathlib.Path) -> None:
    import gguf

    reader = gguf.GGUFReader(source)
    architecture = str(reader.fields["general.architecture"].contents())
    writer = gguf.GGUFWriter(target, architecture)
    for field in reader.fields.values():
        if field.name == "general.architecture" or field.name.startswith("GGUF."):
            continue
        if field.name == "general.file_type":
            writer.add_file_type(gguf.LlamaFileType.ALL_F32)
            continue
        value_type = field.types[0]
        sub_type = field.types[-1] if value_type == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(
            field.name, field.contents(), value_type, sub_type=sub_type
        )
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
