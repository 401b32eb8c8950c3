"""Import transformers for its tokenizers, without its remark that torch is missing.

jengine needs no torch, so a user without it has nothing to mend; all other messages
pass.
"""

import importlib
import logging
from types import ModuleType


def import_transformers() -> ModuleType:
    """Return the `transformers` module, importing it on first use."""
    logger = logging.getLogger("transformers")
    logger.addFilter(_is_not_about_torch)
    try:
        return importlib.import_module("transformers")
    finally:
        logger.removeFilter(_is_not_about_torch)


def _is_not_about_torch(record: logging.LogRecord) -> bool:
    return "PyTorch was not found" not in record.getMessage()
