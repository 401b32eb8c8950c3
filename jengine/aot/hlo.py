"""Reads an optimised HLO module: copies of the cache, collectives, Pallas kernels."""

import collections
import re
from collections.abc import Sequence

HLO_DTYPES = {
    "bfloat16": "bf16",
    "float16": "f16",
    "float32": "f32",
    "int8": "s8",
    "float8_e4m3fn": "f8e4m3fn",
}
_KERNEL = re.compile(
    r'custom_call_target="__gpu\$xla\.gpu\.triton".*[ {]name = "([^"]+)"'
)
_COLLECTIVE = re.compile(
    r" (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)"
    r"(?:-start)?\("
)


def count_copies(module: str, shape: Sequence[int], dtype: str) -> int:
    """Count the instructions that copy a whole array of this shape.

    Args:
      module: HLO text, after all optimisations.
      shape: of the array, on one device.
      dtype: jax's name of its number format.
    """
    sizes = ",".join(str(size) for size in shape)
    array = re.escape(f"{HLO_DTYPES[dtype]}[{sizes}]")
    # copy-start returns a tuple; copy a single array.
    pattern = rf" = \(?{array}[^=\n]*? copy(?:-start)?\("
    return len(re.findall(pattern, module))


def count_collectives(module: str) -> dict[str, int]:
    """Count the collectives by kind; one that runs in two halves counts once."""
    return dict(collections.Counter(_COLLECTIVE.findall(module)))


def pallas_kernels(module: str) -> tuple[str, ...]:
    """Return the names of the Pallas kernels that a module launches, each once."""
    return tuple(dict.fromkeys(_KERNEL.findall(module)))
