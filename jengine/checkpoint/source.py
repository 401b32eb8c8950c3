"""Find a checkpoint: a folder, a `.gguf` file or a name on the Hugging Face hub."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jengine.checkpoint.checkpoint import Checkpoint, TensorReader
from jengine.checkpoint.gguf_config import (
    config_from_metadata,
    generation_from_metadata,
)
from jengine.checkpoint.hub import EVERYTHING, WITHOUT_WEIGHTS, download
from jengine.checkpoint.no_tensors import NoTensors
from jengine.checkpoint.safetensors_reader import (
    INDEX_NAME,
    SINGLE_NAME,
    SafetensorsReader,
    check_downloaded,
    has_weights,
    read_json,
)
from jengine.errors import CheckpointError
from jengine.gguf_header import read_header

_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
_EMBED, _HEAD = "model.embed_tokens.weight", "lm_head.weight"


def open_checkpoint(
    model: str | os.PathLike[str],
    *,
    revision: str | None = None,
    trust_remote_code: bool = False,
    check_config: Callable[[str, Mapping[str, Any]], object] | None = None,
    with_weights: bool = True,
) -> Checkpoint:
    """Open a checkpoint without reading its weights.

    Where the config ties the head to the embedding, but the files hold a head with
    other values, the files win, as in transformers 5: the config that is returned
    then says that the two are not tied.

    Args:
      model: a folder with `config.json` and safetensors, a `.gguf` file, or the
        name of a repository on the Hugging Face hub.
      revision: branch, tag or commit on the hub; a local path has none.
      trust_remote_code: accepted for symmetry with the tokenizer; reading weights
        never runs code from a checkpoint.
      check_config: called with the checkpoint's path and its config before any weights
        are looked for; may raise, for weights of a model that cannot be run need not
        be there.
      with_weights: whether the weights are wanted; else they are neither fetched nor
        missed.

    Raises:
      CheckpointError: if there is none, or it is incomplete or damaged.
      UnsupportedError: if it is of a kind that cannot be read.
    """
    del trust_remote_code
    name = os.fspath(model)
    path = Path(name)
    if path.is_file():
        return _open_gguf(path)
    if not name or not path.exists():
        if not _HUB_NAME.fullmatch(name):
            raise CheckpointError(
                f"{name!r}: no such file or folder, nor can it be a name on the "
                "Hugging Face hub; give the path of a folder with config.json, of a "
                ".gguf file, or a name such as owner/model"
            )
        if check_config is not None:
            # Gigabytes of weights come later, if the model can be run.
            _check_config(download(name, revision, only=("config.json",)), check_config)
        wanted = EVERYTHING if with_weights else WITHOUT_WEIGHTS
        path = download(name, revision, only=wanted)
    return _open_folder(path, check_config, with_weights=with_weights)


def _open_folder(
    folder: Path,
    check_config: Callable[[str, Mapping[str, Any]], object] | None,
    *,
    with_weights: bool,
) -> Checkpoint:
    if not (folder / "config.json").is_file():
        raise CheckpointError(
            f"{folder}: config.json is missing; the folder holds {_listing(folder)}"
            f"{_gguf_hint(folder)}"
        )
    config = read_json(folder / "config.json")
    if check_config is not None:
        check_config(str(folder), config)
    tensors: TensorReader = NoTensors(str(folder))
    if with_weights:
        _check_weights_exist(folder)
        tensors = SafetensorsReader(folder)
    generation = folder / "generation_config.json"
    return Checkpoint(
        path=str(folder),
        config=_with_own_head(config, tensors),
        generation_config=read_json(generation) if generation.is_file() else {},
        tensors=tensors,
        tokenizer_path=str(folder),
    )


def _check_config(
    folder: Path, check_config: Callable[[str, Mapping[str, Any]], object]
) -> None:
    file = folder / "config.json"
    if file.is_file():  # what is missing is said when all has been fetched
        check_config(str(folder), read_json(file))


def _open_gguf(path: Path) -> Checkpoint:
    if path.suffix.lower() != ".gguf":
        raise CheckpointError(
            f"{path}: a single file must be a .gguf file; for safetensors give the "
            "folder that also holds config.json"
        )
    check_downloaded(path)
    # Here, because no other checkpoint needs the package gguf, which GPU images lack.
    from jengine.checkpoint.gguf_reader import GgufReader

    header = read_header(path)
    config = config_from_metadata(header)
    return Checkpoint(
        path=str(path),
        config=config,
        generation_config=generation_from_metadata(header),
        tensors=GgufReader(header, config),
        tokenizer_path=str(path.parent),
        gguf_file=path.name,
    )


def _check_weights_exist(folder: Path) -> None:
    if has_weights(folder):
        return
    pickled = sorted(p.name for p in folder.glob("*.bin")) + sorted(
        p.name for p in folder.glob("*.pt*")
    )
    if pickled:
        raise CheckpointError(
            f"{folder}: the weights are pickled ({pickled[0]}), and jengine never "
            "unpickles, since that can run code; load them in transformers and "
            "save_pretrained(folder), which writes safetensors"
        )
    raise CheckpointError(
        f"{folder}: neither {SINGLE_NAME} nor {INDEX_NAME} nor any other "
        f"model*.safetensors is there; the folder holds {_listing(folder)}"
        f"{_gguf_hint(folder)}"
    )


def _listing(folder: Path) -> str:
    names = sorted(p.name for p in folder.iterdir())
    shown = ", ".join(names[:8]) or "nothing"
    return f"{shown}, ..." if len(names) > 8 else shown


def _gguf_hint(folder: Path) -> str:
    files = sorted(folder.glob("*.gguf"))
    return f"; to load the GGUF file give its path, {files[0]}" if files else ""


def _with_own_head(config: dict[str, Any], tensors: TensorReader) -> dict[str, Any]:
    """Return the config, untied if the files hold a head of its own."""
    if config.get("tie_word_embeddings") is not True:
        return config
    names = set(tensors.names())
    if not {_EMBED, _HEAD} <= names or _equal(tensors, _EMBED, _HEAD):
        return config
    return {**config, "tie_word_embeddings": False}


def _equal(tensors: TensorReader, left: str, right: str) -> bool:
    same_kind = tensors.shape(left) == tensors.shape(right) and (
        tensors.dtype(left) == tensors.dtype(right)
    )
    # Compared as bytes: a NaN equals itself here.
    return same_kind and np.array_equal(
        tensors.read(left).view(np.uint8), tensors.read(right).view(np.uint8)
    )
