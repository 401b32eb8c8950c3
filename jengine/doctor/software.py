"""Which packages are installed, and whether jax's plugins go with its library."""

import dataclasses
import importlib.metadata
from collections.abc import Callable, Mapping

# Those of pyproject.toml, and jaxlib, which comes with jax. Not read from the installed
# metadata: a checkout that was not installed has none.
NEEDED = (
    "jax", "jaxlib", "flax", "jaxtyping", "ml_dtypes", "numpy", "transformers",
    "tokenizers", "safetensors", "huggingface_hub", "gguf", "llguidance", "jinja2",
    "tqdm", "platformdirs", "psutil", "rich",
)  # fmt: skip
# Models run without these; what lacks then.
FOR_SOME = {
    "gguf": ".gguf files",
    "llguidance": "structured outputs",
    "jinja2": "chat templates",
    "platformdirs": "keeping compiled programs",
    "rich": "the colours of this report",
}
# By what each is for.
OPTIONAL = {
    "matplotlib": "pictures",
    "aiohttp": "jengine bench serve",
    "ipywidgets": "progress bars in notebooks",
    "torch": "jengine bench compare with transformers",
}
_PLUGINS = (
    "jax-cuda12-plugin", "jax-cuda12-pjrt", "jax-cuda13-plugin", "jax-cuda13-pjrt",
    "jax-rocm7-plugin", "jax-rocm7-pjrt", "jax-metal", "libtpu",
)  # fmt: skip
# These are released with jaxlib, and must have its version.
_OF_JAXLIB = ("jax-cuda", "jax-rocm")


@dataclasses.dataclass(frozen=True, slots=True)
class Software:
    """Versions by the name of the package; None for what is not installed.

    Attributes:
      needed: what jengine cannot do without.
      optional: what one of its features needs.
      plugins: jax's plugins for accelerators, those that are installed.
    """

    needed: Mapping[str, str | None]
    optional: Mapping[str, str | None]
    plugins: Mapping[str, str]

    @property
    def jax(self) -> str | None:
        """Version of jax."""
        return self.needed["jax"]

    @property
    def missing(self) -> list[str]:
        """Needed packages that are not installed."""
        return [name for name, version in self.needed.items() if version is None]

    @property
    def mismatched(self) -> dict[str, str]:
        """Plugins whose version is not that of jaxlib."""
        jaxlib = self.needed["jaxlib"]
        return {
            name: version
            for name, version in self.plugins.items()
            if name.startswith(_OF_JAXLIB) and version != jaxlib
        }

    @property
    def cuda_majors(self) -> list[int]:
        """Versions of CUDA that there are plugins for."""
        return [
            major for major in (12, 13) if f"jax-cuda{major}-plugin" in self.plugins
        ]


def installed_version(name: str) -> str | None:
    """Return the version of a package; None if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def find_software(
    version_of: Callable[[str], str | None] = installed_version,
) -> Software:
    """Look at the installed packages, without importing any of them.

    Args:
      version_of: a package's version; None if it is not installed.
    """
    plugins = {name: version_of(name) for name in _PLUGINS}
    return Software(
        needed={name: version_of(name) for name in NEEDED},
        optional={name: version_of(name) for name in OPTIONAL},
        plugins={name: found for name, found in plugins.items() if found},
    )
