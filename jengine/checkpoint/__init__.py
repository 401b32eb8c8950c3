"""From a checkpoint on disk or on the hub to named arrays in memory.

Safetensors (one file or shards with an index) and GGUF files come out alike: a
config as in `config.json`, and tensors under their Hugging Face names. Pickled
weights are never read. This package knows no model and no device: which tensors
make which parameter is told to `load_parameters`.
"""

from jengine.checkpoint.checkpoint import Checkpoint, TensorReader
from jengine.checkpoint.load import Target, iter_parameters, load_parameters
from jengine.checkpoint.source import open_checkpoint

__all__ = [
    "Checkpoint",
    "Target",
    "TensorReader",
    "iter_parameters",
    "load_parameters",
    "open_checkpoint",
]
