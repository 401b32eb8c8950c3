"""The command line: which parts, how long, where to; 2 where there is nothing to run.

Exits with 1 if a case gave a wrong result, raised or died.
"""

import argparse
import pathlib
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jengine
from jengine.bench.gpu_check.driver import Driver
from jengine.bench.gpu_check.part import DEVICE, PARTS, Part
from jengine.bench.gpu_check.report import Report
from jengine.bench.gpu_check.table import format_report

EXIT_FAILED = 1
EXIT_NOTHING_TO_RUN = 2
_LIST = "\n".join(f"  {part.name:<20} {part.title}" for part in PARTS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the check and return its exit status."""
    options = _parse(arguments)
    parts = chosen(options.only, smoke=options.smoke)
    start = time.monotonic()
    report = Report(
        pathlib.Path(options.json),
        jengine_version=jengine.__version__,
        started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        minutes=options.minutes,
        smoke=options.smoke,
    )
    with tempfile.TemporaryDirectory(prefix="jengine-gpu-check-") as folder:
        driver = Driver(
            report,
            pathlib.Path(folder),
            smoke=options.smoke,
            end=start + 60 * options.minutes,
            say=lambda line: _say(f"[{time.monotonic() - start:3.0f} s] {line}"),
        )
        found = driver.run_part(DEVICE)
        missing = None if options.smoke else what_is_missing(found)
        if missing is not None:
            report.set_head(missing=missing)
            _say(f"gpu_check: {missing}")
            return EXIT_NOTHING_TO_RUN
        driver.run(parts)
    report.set_head(elapsed_s=time.monotonic() - start)
    sys.stdout.write(format_report(report.parts))
    sys.stdout.write(f"all of it: {options.json}\n")
    return EXIT_FAILED if report.has_failed else 0


def what_is_missing(cases: Sequence[Mapping[str, Any]]) -> str | None:
    """Say what a machine lacks for the check; None if nothing.

    Args:
      cases: of the part that looks at the device.
    """
    found = next(iter(cases), {})
    if found.get("platform") == "gpu":
        return None
    if found.get("status") != "ok":
        why = found.get("reason", "its process said nothing")
        return f"jax does not start ({why}); the file of results has its traceback"
    card = "an NVIDIA GPU is there" if shutil.which("nvidia-smi") else "no NVIDIA GPU"
    return (
        f"{card}, and jax {found.get('jax')} sees only {found.get('platform')!r}. The "
        "check needs a GPU, its driver, and jax's plugin: pip install "
        "'jengine[cuda13]' (or cuda12). --smoke runs every part on the CPU, with "
        "shapes so small that the numbers say nothing."
    )


def chosen(names: Sequence[str], *, smoke: bool) -> tuple[Part, ...]:
    """Return the parts of these names, or all that run unasked, in their order."""
    if names:
        return tuple(part for part in PARTS if part.name in names)
    return tuple(part for part in PARTS if part.in_smoke or not smoke)


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m jengine.bench.gpu_check",
        description="Check and measure jengine on this machine's GPU.",
        epilog=f"parts, in their order:\n{_LIST}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--json", default="gpu_check.json", metavar="FILE", help="results; %(default)s"
    )
    parser.add_argument(
        "--minutes", type=float, default=6.0, help="for everything; %(default)s"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=[part.name for part in PARTS],
        metavar="PART",
        help="run this part; may be given several times",
    )
    parser.add_argument(
        "--smoke", action="store_true", help="tiny shapes on the CPU, to test the check"
    )
    options = parser.parse_args(arguments)
    if not options.minutes > 0:
        parser.error(f"--minutes is {options.minutes}; use more than 0")
    return options
