"""The tokenizer that a GGUF file describes in its metadata.

transformers can build it, but reads the file with torch, which jengine does not need
otherwise. So the metadata is read here and the building is left to transformers.
"""

import importlib
import logging
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from jengine.errors import CheckpointError, JengineError
from jengine.gguf_header import read_header
from jengine.text.transformers_import import import_transformers

logger = logging.getLogger(__name__)

# The values of tokenizer.ggml.pre for which llama.cpp splits text as GPT-2 does. The
# later ones also have each digit apart, as their merges, which join none, do anyway.
_SPLIT_AS_GPT2 = frozenset(
    {
        "gpt-2",
        "phi-2",
        "jina-es",
        "jina-de",
        "jina-v1-en",
        "jina-v2-es",
        "jina-v2-de",
        "jina-v2-code",
        "roberta-bpe",
        "gigachat",
        "a.x-4.0",
        "mellum",
        "modern-bert",
        "mpt",
        "olmo",
        "jais",
        "trillion",
        "granite-docling",
        "exaone4",
        "smollm",
        "starcoder",
        "refact",
        "command-r",
        "codeshell",
        "exaone",
        "minerva-7b",
    }
)


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
    metadata = _read_metadata(file)
    try:
        return _build(metadata, name=str(file))
    except (KeyError, ValueError, IndexError) as error:
        raise CheckpointError(
            f"{file}: no tokenizer can be made of its metadata: {error}. "
            "Pass tokenizer=... to name a directory or a hub repository that has one"
        ) from error


def _read_metadata(file: Path) -> Mapping[str, Any]:
    try:
        return read_header(file).metadata
    except (OSError, ValueError) as error:
        if isinstance(error, JengineError):
            raise
        raise CheckpointError(f"{file}: cannot be read as GGUF: {error}") from error


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
    _warn_of_unknown_split(metadata, mapping, name)
    if metadata.get("tokenizer.ggml.add_space_prefix") is False:
        _drop_prefix_space(backend)
    options = _added_tokens(metadata) | _special_tokens(metadata) | further
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        name_or_path=name,
        chat_template=metadata.get("tokenizer.chat_template"),
        **options,
    )


def _warn_of_unknown_split(
    metadata: Mapping[str, Any], mapping: ModuleType, name: str
) -> None:
    """Say so where transformers falls back on the way that GPT-2 splits text."""
    known = getattr(mapping, "GGUF_PRE_TOKENIZER_SPLITS", None)
    if known is None or metadata.get("tokenizer.ggml.model") != "gpt2":
        return  # older transformers go by the architecture
    kind = metadata.get("tokenizer.ggml.pre")
    if kind not in known and kind not in _SPLIT_AS_GPT2:
        logger.warning(
            "%s: tokenizer.ggml.pre is %s, so text is split as for GPT-2, which may "
            "give other tokens than the model learned; pass tokenizer=... to name a "
            "directory or a hub repository that has its tokenizer",
            name,
            "missing" if kind is None else f"{kind!r}, which is not known",
        )


def _drop_prefix_space(backend: Any) -> None:
    """Add no space before a text; transformers does, whatever the file says."""
    from tokenizers import decoders, pre_tokenizers

    if isinstance(backend.pre_tokenizer, pre_tokenizers.Metaspace):
        backend.pre_tokenizer = pre_tokenizers.Metaspace(
            prepend_scheme="never", split=False
        )
        backend.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
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
