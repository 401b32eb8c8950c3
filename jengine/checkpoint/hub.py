"""Fetch a checkpoint from the Hugging Face hub, or from its local cache."""

from collections.abc import Sequence
from pathlib import Path

from jengine.errors import CheckpointError

# Configs, tokenizers of all kinds, chat templates and safetensors. Pickles are never
# fetched, nor the second copy of the weights that some repositories carry.
_WEIGHTS = "*.safetensors"
WITHOUT_WEIGHTS = ("*.json", "*.model", "*.jinja", "*.txt")
EVERYTHING = (_WEIGHTS, *WITHOUT_WEIGHTS)
_SECOND_COPIES = ("consolidated*", "original/*", "onnx/*")


def download(
    name: str, revision: str | None, *, only: Sequence[str] = EVERYTHING
) -> Path:
    """Return the local folder of a repository, downloading what is not cached.

    Without a network the cached copy is used.

    Args:
      name: repository, such as "owner/model".
      revision: branch, tag or commit; None for the main branch.
      only: patterns of the files to fetch.

    Raises:
      CheckpointError: if there is no such repository, or no network and no copy.
    """
    # Here and not above: hundreds of milliseconds that local checkpoints never need.
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError

    try:
        folder = huggingface_hub.snapshot_download(
            name,
            revision=revision,
            allow_patterns=list(only),
            ignore_patterns=list(_SECOND_COPIES),
        )
    except (HfHubHTTPError, OSError, ValueError) as error:
        at = "" if revision is None else f" at revision {revision}"
        reason = str(error).strip().splitlines()[0]
        raise CheckpointError(
            f"{name}: no such file or folder (looked in {Path.cwd()}), and the "
            f"Hugging Face hub did not give it{at}: {reason}; check the name, the "
            "network and, for a gated model, your access token, or give the path of "
            "a local folder or .gguf file"
        ) from error
    return Path(folder)
