"""Find a model's `config.json`, without its weights.

Looks in a folder, at the file itself, at a `.gguf` file's header, or on the Hugging
Face hub, where it fetches this one file.
"""

from pathlib import Path
from typing import Any

from jengine.checkpoint.gguf_config import config_from_metadata
from jengine.checkpoint.safetensors_reader import read_json
from jengine.errors import CheckpointError
from jengine.gguf_header import read_header

CONFIG_NAME = "config.json"


def find_model_config(model: str, revision: str | None = None) -> dict[str, Any]:
    """Return the content of a model's `config.json`.

    Args:
      model: a folder, a `config.json`, a `.gguf` file, or a name on the hub.
      revision: of the hub's repository.

    Raises:
      CheckpointError: there is none, or it cannot be read.
    """
    path = Path(model)
    if path.is_dir():
        return _in_folder(path)
    if path.suffix.lower() == ".gguf" and path.is_file():
        return config_from_metadata(read_header(path))
    if path.is_file():
        return read_json(path)
    return read_json(_download(model, revision))


def _in_folder(folder: Path) -> dict[str, Any]:
    if not (folder / CONFIG_NAME).is_file():
        raise CheckpointError(
            f"{folder}: {CONFIG_NAME} is missing; give the folder of a model, the path "
            "of a config.json or of a .gguf file, or a name on the Hugging Face hub"
        )
    return read_json(folder / CONFIG_NAME)


def _download(name: str, revision: str | None) -> Path:
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError

    try:
        found = huggingface_hub.hf_hub_download(name, CONFIG_NAME, revision=revision)
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise CheckpointError(
            f"{name}: no such file or folder (looked in {Path.cwd()}), and the Hugging "
            f"Face hub gave no {CONFIG_NAME}: {reason}"
        ) from error
    return Path(found)
