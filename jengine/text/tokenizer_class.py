"""Which class of transformers loads a folder's tokenizer."""

import json
from pathlib import Path
from typing import Any

from jengine.text.transformers_import import import_transformers

# Two names of one class, which does what tokenizer.json says and nothing else.
_PLAIN = ("PreTrainedTokenizerFast", "TokenizersBackend")
# Types of models that AutoTokenizer has no class of its own for.
_WITHOUT_OWN_CLASS = ("llama",)


def tokenizer_class(path: str | Path) -> Any:
    """Return the class to call `from_pretrained` of, with `path`.

    AutoTokenizer knows them all, but its import brings the models' configurations and,
    where it is installed, torch: up to five seconds. So a folder whose files leave no
    choice gets the class that AutoTokenizer would choose, at once.

    Args:
      path: a directory or the name of a hub repository.
    """
    transformers = import_transformers()
    if _is_plain(Path(path)):
        return transformers.PreTrainedTokenizerFast
    return transformers.AutoTokenizer


def _is_plain(folder: Path) -> bool:
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        own = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return False  # AutoTokenizer says what is wrong
    if not (isinstance(config, dict) and isinstance(own, dict)):
        return False
    if "auto_map" in own or not (folder / "tokenizer.json").is_file():
        return False
    named, model_type = own.get("tokenizer_class"), config.get("model_type")
    return named in _PLAIN and model_type in _WITHOUT_OWN_CLASS
