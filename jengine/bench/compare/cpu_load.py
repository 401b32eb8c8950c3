"""How much of the machine others used, while we measured.

Busy time of all CPUs comes from /proc/stat, our own from the processes that we
started. Time that a hypervisor gave to other machines counts as somebody else's.
"""

import contextlib
import time
from typing import NamedTuple

import psutil


class CpuTimes(NamedTuple):
    """Readings of one moment, in seconds.

    Attributes:
      at: of the monotonic clock.
      busy: all CPUs of the machine, since it was booted.
      own: this process, and all that it started.
    """

    at: float
    busy: float
    own: float


def read_cpu_times() -> CpuTimes:
    """Read the clocks."""
    own = _own_seconds(psutil.Process())
    return CpuTimes(time.monotonic(), busy_seconds(psutil.cpu_times()), own)


def busy_seconds(times: object) -> float:
    """Return what of a machine's CPU time was neither idle nor waiting.

    Guests' time is in `user` already.
    """
    kinds = ("user", "nice", "system", "irq", "softirq", "steal")
    return sum(getattr(times, kind, 0.0) for kind in kinds)


def foreign_cpus(before: CpuTimes, after: CpuTimes) -> float:
    """Return how many CPUs other processes kept busy between two readings."""
    seconds = after.at - before.at
    if seconds <= 0:
        return 0.0
    others = (after.busy - before.busy) - (after.own - before.own)
    return max(0.0, others / seconds)


def _own_seconds(process: psutil.Process) -> float:
    """Return the CPU time of a process and its offspring, the departed included."""
    total = 0.0
    for one in [process, *process.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            spent = one.cpu_times()
            total += spent.user + spent.system
            total += spent.children_user + spent.children_system
    return total
