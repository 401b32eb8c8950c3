"""What a device ran, kernel by kernel, from a trace of jax's profiler.

XLA leaves CUDA graphs aside while it is traced, so each kernel shows; and so the
times between kernels are not those of a run that is not traced. Their number and the
time inside them are.
"""

import contextlib
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax

from jengine.bench.gpu_check.recorder import SkipCaseError

_MOST_LISTED = 12


class DeviceEvent(NamedTuple):
    """A kernel or a copy on a GPU.

    Attributes:
      name: of the kernel.
      start_ns: in nanoseconds.
      duration_ns: likewise.
    """

    name: str
    start_ns: float
    duration_ns: float

    @property
    def is_copy(self) -> bool:
        """Whether the copy engine or the driver did it, no kernel."""
        return self.name.lower().startswith(("memcpy", "memset"))


def trace_device(run: Callable[[], None]) -> list[DeviceEvent]:
    """Run something and return what the GPU did meanwhile.

    Args:
      run: returns when the device is done.

    Raises:
      SkipCaseError: the profiler saw no GPU.
    """
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    options.host_tracer_level = 1
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            run()
        found = sorted(pathlib.Path(folder).rglob("*.xplane.pb"))
        if not found:
            raise SkipCaseError("the profiler wrote no trace")
        data = jax.profiler.ProfileData.from_file(str(found[-1]))
    events = device_events(data)
    if not events:
        raise SkipCaseError("the trace has no kernels of a GPU")
    return events


def device_events(data: Any) -> list[DeviceEvent]:
    """Return the events of all streams of all GPUs of a profile, by start."""
    events = [
        DeviceEvent(event.name, event.start_ns, event.duration_ns)
        for plane in data.planes
        if plane.name.startswith("/device:GPU")
        for line in plane.lines
        if line.name.startswith("Stream")
        for event in line.events
    ]
    return sorted(events, key=lambda event: event.start_ns)


def busy_ns(events: Iterable[DeviceEvent]) -> float:
    """Return the time in which at least one event, given by start, was running."""
    total, end = 0.0, float("-inf")
    for event in events:
        stop = event.start_ns + event.duration_ns
        total += max(0.0, stop - max(event.start_ns, end))
        end = max(end, stop)
    return total


def summarise(events: list[DeviceEvent], steps: int) -> dict[str, Any]:
    """Return counts and times of one step, and the kernels that take most of it."""
    kernels = [event for event in events if not event.is_copy]
    return {
        "launches_per_step": len(kernels) / steps,
        "copies_per_step": (len(events) - len(kernels)) / steps,
        "device_busy_s_per_step": busy_ns(events) * 1e-9 / steps,
        "kernels": _largest(kernels, steps),
    }


def profile_steps(run: Callable[[], None], steps: int) -> Mapping[str, Any]:
    """Trace steps; what is not to be had is said in the fields, and nothing raised."""
    try:
        return summarise(trace_device(run), steps)
    except (SkipCaseError, RuntimeError, OSError) as error:
        with contextlib.suppress(RuntimeError):
            jax.profiler.stop_trace()
        return {"profile": f"not to be had: {error}"[:300]}


def _largest(kernels: list[DeviceEvent], steps: int) -> list[dict[str, Any]]:
    totals: dict[str, list[float]] = {}
    for event in kernels:
        totals.setdefault(event.name, []).append(event.duration_ns)
    ranked = sorted(totals.items(), key=lambda item: -sum(item[1]))
    return [
        {
            "name": name[:80],
            "launches_per_step": len(times) / steps,
            "s_per_step": sum(times) * 1e-9 / steps,
        }
        for name, times in ranked[:_MOST_LISTED]
    ]
