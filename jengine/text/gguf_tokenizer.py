"""The tokenizer that a GGUF file describes in its metadata.

transformers can build it, but reads the file with torch, which jengine does not need
otherwise. So the metadata is read here and the building is left to transformers. The
`gguf` package could read it too, at 5 seconds for a vocabulary of 49,152 tokens
against 0.2 for this reader, because it makes an array of every string.
"""

import importlib
import mmap
import struct
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from jengine.errors import CheckpointError
from jengine.text.transformers_import import import_transformers

_SCALARS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
    12: "d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9


def load_gguf_tokenizer(
    path: str | Path, gguf_file: str | None = None, *, revision: str | None = None
) -> Any:
    """Return the Hugging Face tokenizer that a GGUF file describes.

    Args:
      path: the file, the directory that holds it or the name of a hub repository.
      gguf_file: name of the file in `path`, None if `path` is the file.
      revision: branch, tag or commit of a hub repository.

    Raises:
      CheckpointError: if the file is missing, broken or of an unknown kind.
    """
    file = _locate(path, gguf_file, revision)
    metadata = read_gguf_metadata(file)
    try:
        return _build(metadata, name=str(file))
    except (KeyError, ValueError, IndexError) as error:
        raise CheckpointError(
            f"{file}: no tokenizer can be made of its metadata: {error}. "
            "Pass tokenizer=... to name a directory or a hub repository that has one"
        ) from error


def read_gguf_metadata(file: str | Path) -> dict[str, Any]:
    """Return the metadata of a GGUF file, arrays as lists, without any tensor.

    Raises:
      CheckpointError: if it cannot be read.
    """
    try:
        with (
            Path(file).open("rb") as stream,
            mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            return _Reader(data).metadata()
    except (OSError, ValueError, struct.error) as error:
        raise CheckpointError(f"{file}: cannot be read as GGUF: {error}") from error


class _Reader:
    """A position in a GGUF file, and the readers of its values."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.position = 0

    def metadata(self) -> dict[str, Any]:
        if self.data[:4] != b"GGUF":
            raise ValueError("it does not begin with 'GGUF'")
        self.position = 4
        version, _, count = self.scalar("I"), self.scalar("Q"), self.scalar("Q")
        if version not in (2, 3):
            raise ValueError(f"GGUF version {version}; versions 2 and 3 are supported")
        return dict(self.entry() for _ in range(count))

    def entry(self) -> tuple[str, Any]:
        name = self.string()
        return name, self.value(self.scalar("I"))

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind in _SCALARS:
            return self.scalar(_SCALARS[kind])
        if kind != _ARRAY:
            raise ValueError(f"unknown type {kind} of metadata")
        kind, count = self.scalar("I"), self.scalar("Q")
        if kind in _SCALARS:
            return list(self.scalars(_SCALARS[kind], count))
        return [self.value(kind) for _ in range(count)]

    def scalar(self, code: str) -> Any:
        return self.scalars(code, 1)[0]

    def scalars(self, code: str, count: int) -> tuple[Any, ...]:
        layout = struct.Struct(f"<{count}{code}")
        values = layout.unpack_from(self.data, self.position)
        self.position += layout.size
        return values

    def string(self) -> str:
        (length,) = _LENGTH.unpack_from(self.data, self.position)
        start = self.position + 8
        self.position = start + length
        if self.position > len(self.data):
            raise ValueError("it ends inside a string of its metadata")
        return self.data[start : self.position].decode("utf-8")


_LENGTH = struct.Struct("<Q")


def _locate(path: str | Path, gguf_file: str | None, revision: str | None) -> Path:
    if gguf_file is None:
        return Path(path)
    if Path(path).is_dir():
        return Path(path) / gguf_file
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(str(path), gguf_file, revision=revision))
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{str(path)!r} is no directory here, and {gguf_file} is not to be had "
            f"from the hub: {error}"
        ) from error


def _build(metadata: Mapping[str, Any], *, name: str) -> Any:
    transformers = import_transformers()
    mapping = _converter_module()
    parts = {
        name: metadata[f"tokenizer.{key}"]
        for key, name in mapping.GGUF_TOKENIZER_MAPPING["tokenizer"].items()
        if f"tokenizer.{key}" in metadata
    }
    architecture = metadata["general.architecture"]
    backend, further = mapping.convert_gguf_tokenizer(architecture, parts)
    options = _added_tokens(metadata) | _special_tokens(metadata) | further
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        name_or_path=name,
        chat_template=metadata.get("tokenizer.chat_template"),
        **options,
    )


def _converter_module() -> ModuleType:
    """Return the module of transformers that builds tokenizers from GGUF metadata."""
    package = "transformers.integrations"
    try:
        return importlib.import_module(f"{package}.gguf.gguf_tokenizer_mapping")
    except ImportError:  # where older transformers have it
        return importlib.import_module(f"{package}.ggml")


def _added_tokens(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Settle whether encoding adds BOS and EOS, as transformers and llama.cpp do.

    Old files of the SentencePiece kind do not say and mean a BOS; Gemma 4 files ask for
    one although their chat template writes it.
    """
    kind = metadata.get("tokenizer.ggml.model")
    keys = ("add_bos_token", "add_eos_token")
    stated = {key: metadata.get(f"tokenizer.ggml.{key}") for key in keys}
    options = {key: value for key, value in stated.items() if value is not None}
    if kind == "gemma4":
        return options | {"add_bos_token": False}
    return {"add_bos_token": True} | options if kind == "llama" else options


def _special_tokens(metadata: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the text of the special tokens by their role in transformers."""
    keys = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    tokens = metadata["tokenizer.ggml.tokens"]
    ids = {
        role: metadata.get(f"tokenizer.ggml.{key}_token_id")
        for role, key in keys.items()
    }
    return {
        f"{role}_token": None if token_id is None else tokens[token_id]
        for role, token_id in ids.items()
    }
