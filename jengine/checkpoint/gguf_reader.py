"""Weights in a GGUF file, under Hugging Face names and in Hugging Face layout.

llama.cpp rotates neighbouring features of a head, Hugging Face features half a head
apart; its converter therefore reorders the rows of query and key projections of the
llama architecture, and of that one only. Reading undoes it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import gguf
import ml_dtypes
import numpy as np

from jengine.checkpoint.gguf_config import ROPE_FACTORS
from jengine.errors import CheckpointError, UnsupportedError
from jengine.gguf_header import GgufHeader, GgufTensor

_TOP = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER_NAME = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
_PERMUTED = re.compile(r"blk\.\d+\.attn_([qk])\.(weight|bias)")
_PLAIN = {
    gguf.GGMLQuantizationType.F64: np.dtype(np.float64),
    gguf.GGMLQuantizationType.F32: np.dtype(np.float32),
    gguf.GGMLQuantizationType.F16: np.dtype(np.float16),
    gguf.GGMLQuantizationType.BF16: np.dtype(ml_dtypes.bfloat16),
}


class GgufReader:
    """Named tensors of a GGUF file, dequantised when they are read."""

    def __init__(self, header: GgufHeader, config: Mapping[str, Any]):
        """Check that every tensor lies inside the file.

        Args:
          header: of the file.
          config: made from its metadata; for the head counts.

        Raises:
          CheckpointError: if the file is cut.
          UnsupportedError: if a tensor's number format is not known.
        """
        self._header = header
        self._heads = {
            "q": config["num_attention_heads"],
            "k": config["num_key_value_heads"],
        }
        self._permuted = header.metadata["general.architecture"] in ("llama", "mistral")
        self._names = {
            huggingface_name(name): name
            for name in header.tensors
            if name != ROPE_FACTORS  # part of the config
        }
        for name, place in header.tensors.items():
            _check_place(header, name, place)

    def names(self) -> Iterable[str]:
        """Return the Hugging Face names; unknown tensors keep their GGUF name."""
        return self._names.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return self._place(name).shape

    def dtype(self, name: str) -> np.dtype:
        """Return the number format that `read` gives: float32 for quantised ones."""
        kind = gguf.GGMLQuantizationType(self._place(name).type_id)
        return _PLAIN.get(kind, np.dtype(np.float32))

    def location(self, name: str) -> str:  # noqa: ARG002 (one file holds them all)
        """Return the file."""
        return str(self._header.path)

    def read(self, name: str) -> np.ndarray:
        """Return the values of a tensor, in Hugging Face layout.

        Raises:
          UnsupportedError: if its quantisation is not known to `gguf`.
        """
        stored = self._names[name]
        values = self._values(stored)
        match = _PERMUTED.fullmatch(stored)
        if match and self._permuted:
            return unpermute(values, self._heads[match[1]])
        return values

    def _place(self, name: str) -> GgufTensor:
        return self._header.tensors[self._names[name]]

    def _values(self, stored: str) -> np.ndarray:
        place = self._header.tensors[stored]
        kind = gguf.GGMLQuantizationType(place.type_id)
        raw = np.memmap(
            self._header.path,
            mode="r",
            offset=place.offset,
            shape=(num_bytes(place),),
        )
        if kind in _PLAIN:
            # A copy, since a view would keep the file open and change with it.
            return np.array(raw.view(_PLAIN[kind]).reshape(place.shape))
        rows = gguf.quant_shape_to_byte_shape(place.shape, kind)
        try:
            return gguf.dequantize(raw.reshape(rows), kind)
        except NotImplementedError as error:
            raise UnsupportedError(
                f"{self._header.path}: tensor {stored} is quantised as {kind.name}, "
                "which the gguf package cannot undo; take another quantisation"
            ) from error


def huggingface_name(name: str) -> str:
    """Return the Hugging Face name of a tensor, or its own if it has none.

    >>> huggingface_name("blk.3.ffn_up.weight")
    'model.layers.3.mlp.up_proj.weight'
    """
    stem, _, leaf = name.rpartition(".")
    if stem in _TOP:
        return f"{_TOP[stem]}.{leaf}"
    match = _LAYER_NAME.fullmatch(name)
    if match and match[2] in _LAYER:
        return f"model.layers.{match[1]}.{_LAYER[match[2]]}.{match[3]}"
    return name


def unpermute(values: np.ndarray, num_heads: int) -> np.ndarray:
    """Undo the row order of llama.cpp within each head.

    Rows come as pairs (i, i + D/2) of a head and leave as all first, then all
    second halves.

    Args:
      values: weight or bias of a query or key projection.
      num_heads: heads among its rows; for keys the key heads.
    """
    pairs = values.reshape(num_heads, -1, 2, *values.shape[1:])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def num_bytes(place: GgufTensor) -> int:
    """Return the bytes that a tensor takes in the file."""
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(place.type_id)]
    return int(np.prod(place.shape, dtype=np.int64)) // block * size


def _check_place(header: GgufHeader, name: str, place: GgufTensor) -> None:
    try:
        end = place.offset + num_bytes(place)
    except (ValueError, KeyError) as error:
        raise UnsupportedError(
            f"{header.path}: tensor {name} has the unknown number format "
            f"{place.type_id}; a newer gguf package may know it"
        ) from error
    if end > header.size:
        raise CheckpointError(
            f"{header.path}: tensor {name} ends at byte {end}, but the file has only "
            f"{header.size}; download it again"
        )
