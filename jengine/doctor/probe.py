"""Starts jax and says what it found, in a process that may end by it.

    python -m jengine.doctor.probe

writes one JSON object to stdout: `{"devices": [...], ...}`, or `{"error": "..."}`.
"""

import json
import sys
from typing import Any


def main() -> int:
    """Look at the devices, and write what was found."""
    try:
        found = look()
    except Exception as error:  # any: that it failed is what was found
        found = {"error": _words(error)}
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


def look() -> dict[str, Any]:
    """Return what jax says of the devices, and whether programs run on them."""
    import jax

    from jengine.runner.cache import pool_bytes
    from jengine.runner.compilation_cache import cache_folder
    from jengine.runner.device import compute_capability

    device = jax.local_devices()[0]
    folder = cache_folder(None, device)
    return {
        "platform": device.platform,
        "devices": [one.device_kind for one in jax.local_devices()],
        "compute_capability": compute_capability(device),
        "memory_bytes": _memory_bytes(device),
        "pool_bytes": pool_bytes(device, _share()),
        "cache": None if folder is None else str(folder),
        "jax_cache": getattr(jax.config, "jax_compilation_cache_dir"),  # noqa: B009
        "xla": _outcome_of(_run_xla),
        "pallas": _outcome_of(lambda: run_pallas(interpret=device.platform == "cpu")),
    }


def run_pallas(*, interpret: bool) -> None:
    """Compile a small kernel and check its result.

    Args:
      interpret: whether jax runs it operation by operation, as it must on a CPU.

    Raises:
      ArithmeticError: the result is wrong.
    """
    import jax
    import jax.numpy as jnp
    from jax.experimental import pallas as pl

    def double(x: Any, out: Any) -> None:
        out[...] = x[...] * 2

    x = jnp.arange(64, dtype=jnp.float32)
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    found = pl.pallas_call(double, out_shape=shape, interpret=interpret)(x)
    _check(float(found.sum()), 64.0 * 63)


def _run_xla() -> None:
    import jax
    import jax.numpy as jnp

    found = jax.jit(lambda x: x @ x)(jnp.ones((32, 32), jnp.float32))
    _check(float(found.sum()), 32.0**3)


def _check(found: float, expected: float) -> None:
    if found != expected:
        raise ArithmeticError(f"the result is {found}, and should be {expected}")


def _outcome_of(attempt: Any) -> str | None:
    """Return why an attempt failed; None if it did not."""
    try:
        attempt()
    except Exception as error:  # any: that it failed is what was found
        return _words(error)
    return None


def _words(error: Exception) -> str:
    """Return the kind of error, and its message if it has one: jax's asserts do not."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def _memory_bytes(device: Any) -> int | None:
    stats = None if device.platform == "cpu" else device.memory_stats()
    return None if stats is None else stats["bytes_limit"]


def _share() -> float:
    from jengine.config import EngineConfig

    return EngineConfig(model="any").gpu_memory_utilization


if __name__ == "__main__":
    sys.exit(main())
