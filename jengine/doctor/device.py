"""Runs the probe in a process of its own and reads what it says."""

import dataclasses
import json
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

PATIENCE_S = 180.0
_ERROR = re.compile(r"^\w+(?:Error|Exception): .+$", re.MULTILINE)
_LAST_LINES = 6  # of a process that died, enough for XLA's reason
# The probe must not take three quarters of a card that others compute on.
_VARIABLES = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
COMMAND = (sys.executable, "-m", "jengine.doctor.probe")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """What jax can use.

    Attributes:
      error: why it can use nothing, and all that follows is empty then; None else.
      platform: jax's word for the kind of device: "cpu", "gpu".
      devices: the names of all of that kind.
      compute_capability: of an NVIDIA GPU, else None.
      memory_bytes: what jax may use of an accelerator's memory; None on a CPU.
      pool_bytes: what the KV pool and, on accelerators, the weights may take.
      cache: folder of compiled programs; None if there is none.
      jax_cache: the folder that jax was told by others; jengine leaves it at that.
      xla: why a program failed; None if it ran.
      pallas: why a kernel failed; None if it ran.
      plugin: why jax could not use one of its plugins; None if it could, or has none.
    """

    error: str | None = None
    platform: str = ""
    devices: tuple[str, ...] = ()
    compute_capability: tuple[int, int] | None = None
    memory_bytes: int | None = None
    pool_bytes: int = 0
    cache: str | None = None
    jax_cache: str | None = None
    xla: str | None = None
    pallas: str | None = None
    plugin: str | None = None


def probe_device(
    environment: Mapping[str, str],
    *,
    command: Sequence[str] = COMMAND,
    patience_s: float = PATIENCE_S,
) -> DeviceFacts:
    """Start jax elsewhere and return what it found; it never raises.

    Args:
      environment: variables of this process.
      command: what to run.
      patience_s: after that the process is killed.
    """
    try:
        done = subprocess.run(
            list(command),
            env={**_VARIABLES, **environment},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=patience_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return DeviceFacts(error=f"jax has not started after {patience_s:g} s")
    except OSError as error:
        return DeviceFacts(error=f"Python could not be started: {error}")
    found = _read(done.stdout) or DeviceFacts(error=_how_it_ended(done))
    return dataclasses.replace(found, plugin=plugin_error(done.stderr))


def plugin_error(stderr: str) -> str | None:
    """Return what jax says of a plugin that it cannot use: the last of its errors."""
    _, found, rest = stderr.partition("plugin configuration error")
    errors = _ERROR.findall(rest)
    return errors[-1] if found and errors else None


def _read(output: str) -> DeviceFacts | None:
    """Return what the last line says; None if it is not the probe's."""
    try:
        found = json.loads(output.splitlines()[-1])
        if "error" in found:
            return DeviceFacts(error=str(found["error"]))
        capability = found["compute_capability"]
        return DeviceFacts(
            **{
                **found,
                "devices": tuple(found["devices"]),
                "compute_capability": capability and tuple(capability),
            }
        )
    except (IndexError, KeyError, TypeError, ValueError):
        return None


def _how_it_ended(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode < 0:
        ended = f"ended by {_signal_name(-done.returncode)}"
    else:
        ended = f"ended with status {done.returncode}"
    said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return "; ".join([f"the process that started jax {ended}", *said[-_LAST_LINES:]])


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
