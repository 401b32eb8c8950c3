"""jax's persistent compilation cache, so that a second start compiles nothing."""

import logging
from pathlib import Path
from typing import Literal

import jax

from jengine.runner.device import Device

logger = logging.getLogger(__name__)

_MAX_BYTES = 2 * 1024**3
_OPTION = "jax_compilation_cache_dir"


def enable_compilation_cache(
    folder: str | Literal[False] | None, device: Device
) -> None:
    """Keep compiled programs on disk, unless jax was told already where to.

    The settings are the process's own, jax has no others; the first engine decides.

    Args:
      folder: where; None for the user's cache folder, False for nowhere.
      device: programs of other kinds of device, or of other versions of jax, lie
        in other folders.
    """
    if folder is False or _is_set():
        return
    path = cache_folder(folder, device)
    if path is None:
        logger.warning(
            "no compilation cache: platformdirs is not installed; install it, or name "
            "a folder as compilation_cache_dir"
        )
        return
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        logger.warning("no compilation cache: %s cannot be made: %s", path, error)
        return
    jax.config.update(_OPTION, str(path))
    jax.config.update("jax_compilation_cache_max_size", _MAX_BYTES)
    # Small programs are many: leaving them out would compile them at each start.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def cache_folder(folder: str | None, device: Device) -> Path | None:
    """Return where compiled programs lie; None without platformdirs.

    Args:
      folder: as for `enable_compilation_cache`.
      device: as for `enable_compilation_cache`.
    """
    base = Path(folder) if folder else _user_folder()
    if base is None:
        return None
    kind = "".join(c if c.isalnum() else "-" for c in device.device_kind)
    return base / f"jax-{jax.__version__}-{kind}"


def _user_folder() -> Path | None:
    # Images for GPUs often lack it, and only a second start is slower without.
    try:
        import platformdirs
    except ModuleNotFoundError:
        return None
    return platformdirs.user_cache_path("jengine") / "xla"


def _is_set() -> bool:
    return getattr(jax.config, _OPTION) is not None
