"""One part in a process of its own; `driver` starts it.

Exits with 0 when the part is through, whatever came of its cases, and with 3 when
the device is lost and a new process should go on with the cases that are left.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence

from jengine.bench.gpu_check.driver import EXIT_DEVICE_LOST
from jengine.bench.gpu_check.recorder import DeviceLostError, Recorder


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a part's module and return the exit status."""
    options = _parse(arguments)
    part = importlib.import_module(options.module)
    with open(options.lines, "a", encoding="utf-8", buffering=1) as lines:
        recorder = Recorder(
            lines.write,
            seconds=options.seconds,
            done=options.done,
            smoke=options.smoke,
            serial=options.serial,
            is_alive=getattr(part, "is_alive", device_is_alive),
        )
        try:
            part.run(recorder)
        except DeviceLostError as error:
            sys.stderr.write(f"{error}\n")
            return EXIT_DEVICE_LOST
    return 0


def device_is_alive() -> bool:
    """Whether the device still adds: after an illegal address it never does."""
    import jax.numpy as jnp  # here, for not every part has any use for jax

    try:
        return int(jnp.int32(1) + jnp.int32(1)) == 2
    except RuntimeError:
        return False


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--module", required=True)
    parser.add_argument("--lines", required=True)
    parser.add_argument("--seconds", required=True, type=float)
    parser.add_argument("--done", action="append", default=[])
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--serial", action="store_true")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
