"""Doubles and small checkpoints for tests, benchmarks and notebooks.

- `markov`: a Llama checkpoint whose logits are known in closed form.
- `random_llama`: random checkpoints of each architecture that use their history.
- `toy_tokenizers`: a byte tokenizer and a SentencePiece-like one.

Names load on first use, so importing this package is cheap.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jengine.testing.markov import (
        cycle,
        scripted,
        uniform,
        write_markov_checkpoint,
    )
    from jengine.testing.random_llama import write_random_checkpoint
    from jengine.testing.toy_tokenizers import (
        write_byte_tokenizer,
        write_sentencepiece_tokenizer,
    )

_MODULES = {
    "cycle": "markov",
    "scripted": "markov",
    "uniform": "markov",
    "write_byte_tokenizer": "toy_tokenizers",
    "write_markov_checkpoint": "markov",
    "write_random_checkpoint": "random_llama",
    "write_sentencepiece_tokenizer": "toy_tokenizers",
}

__all__ = [
    "cycle",
    "scripted",
    "uniform",
    "write_byte_tokenizer",
    "write_markov_checkpoint",
    "write_random_checkpoint",
    "write_sentencepiece_tokenizer",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULES[name]}")
    return getattr(module, name)
