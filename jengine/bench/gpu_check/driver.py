"""Runs parts one after another, each in a process of its own, under one deadline.

A process that dies takes one case with it: another one, which compiles nothing ahead,
goes on with those that are left. A process that is still there at its time limit is
killed, with all its children.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jengine.bench.gpu_check.events import (
    CRASHED,
    RUNNING,
    SKIPPED,
    TIMED_OUT,
    EventFile,
)
from jengine.bench.gpu_check.part import Part
from jengine.bench.gpu_check.report import Report, status_of

EXIT_DEVICE_LOST = 3  # of a worker; see there
MOST_PROCESSES = 4  # of one part: a broken card would make every case die
_WORKER = "jengine.bench.gpu_check.worker"
_STOP_EARLY_S = 3.0  # a part is told to end this long before it is killed
_SMOKE_PATIENCE = 10  # machines that run tests are busy
_POLL_S = 0.1
_TAIL = 2000  # characters of output that are kept


class Ended(NamedTuple):
    """How a process ended.

    Attributes:
      exit_status: None if it was killed at its time limit; negative for a signal.
      open_case: the case that it was in.
      output: the end of what it wrote.
    """

    exit_status: int | None
    open_case: str | None
    output: str

    @property
    def reason(self) -> str | None:
        """What went wrong; None if nothing did."""
        if self.exit_status is None:
            return "still running at its time limit"
        if self.exit_status == 0:
            return None
        last = self.output.strip().splitlines()[-1:]
        return f"process ended with {self.exit_status}: {' '.join(last)[-300:]}"

    @property
    def leaves_cases(self) -> bool:
        """Whether a new process can go on behind the case that this one died of."""
        if self.exit_status in (0, None):
            return False
        return self.exit_status == EXIT_DEVICE_LOST or self.open_case is not None


class Driver:
    """Starts processes, watches them, and keeps the report up to date."""

    def __init__(
        self,
        report: Report,
        folder: pathlib.Path,
        *,
        smoke: bool,
        end: float,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Start nothing yet.

        Args:
          report: what came of each part.
          folder: for files that are of no use afterwards.
          smoke: whether to run on the CPU, with small shapes.
          end: when everything must be over, in seconds of `time.monotonic`.
          say: takes a line about what is going on.
        """
        self._report = report
        self._folder = folder
        self._smoke = smoke
        self._end = end
        self._say = say

    def run(self, parts: Sequence[Part]) -> None:
        """Run parts, or write down why one was left out."""
        for part in parts:
            left = self._end - time.monotonic()
            if left < part.least_s:
                reason = f"{max(0.0, left):.0f} s left of --minutes"
                self._say(f"{part.name}: skipped, {reason}")
                self._set(part, SKIPPED, [], reason=reason)
            else:
                self.run_part(part)

    def run_part(self, part: Part) -> list[dict[str, Any]]:
        """Run one part to its end and return its cases."""
        start = time.monotonic()
        limit_s = part.limit_s * (_SMOKE_PATIENCE if self._smoke else 1)
        end = min(start + limit_s, self._end)
        self._say(f"{part.name}: {part.title}, at most {end - start:.0f} s")
        events = EventFile(self._folder / f"{part.name}.jsonl")
        ended = self._run_process(part, events, end, serial=False)
        processes = 1
        while ended.leaves_cases and processes < MOST_PROCESSES:
            if end - time.monotonic() < _STOP_EARLY_S:
                break
            self._say(f"{part.name}: {ended.reason}; another one takes over")
            ended = self._run_process(part, events, end, serial=True)
            processes += 1
            # The first one compiled ahead, so that the case that it was in need not
            # be the one that it died of; here it is.
            _close(events, ended)
        _close(events, ended)
        self._set(
            part,
            _status(ended, events.cases),
            events.cases,
            seconds=time.monotonic() - start,
            processes=processes,
            reason=ended.reason,
            output=ended.output if ended.exit_status != 0 else None,
        )
        return events.cases

    def _run_process(
        self, part: Part, events: EventFile, end: float, *, serial: bool
    ) -> Ended:
        log = self._folder / f"{part.name}.log"
        with open(log, "w", encoding="utf-8") as output:
            process = subprocess.Popen(
                self._command(part, events, end, serial=serial),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            exit_status = self._watch(part, process, events, end)
        finally:
            _kill(process)
        text = log.read_text("utf-8", errors="replace")
        return Ended(exit_status, events.open_case, text[-_TAIL:])

    def _watch(
        self, part: Part, process: subprocess.Popen, events: EventFile, end: float
    ) -> int | None:
        """Wait for a process; return None if it must be killed."""
        shown = -1
        while process.poll() is None and time.monotonic() < end:
            size = events.path.stat().st_size
            if size != shown:
                self._set(part, RUNNING, events.cases)
                shown = size
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_POLL_S)
        return process.poll()

    def _command(
        self, part: Part, events: EventFile, end: float, *, serial: bool
    ) -> list[str]:
        seconds = max(0.0, end - time.monotonic() - _STOP_EARLY_S)
        command = ["env", *self._environment(part), sys.executable, "-m", _WORKER]
        command += ["--module", part.module, "--lines", str(events.path)]
        command += ["--seconds", f"{seconds:.1f}"]
        command += [f"--done={case}" for case in events.ended]
        command += ["--smoke"] * self._smoke + ["--serial"] * serial
        return command

    def _environment(self, part: Part) -> list[str]:
        # A process that takes over from one that died compiles nothing anew.
        found = [
            f"JAX_COMPILATION_CACHE_DIR={self._folder / 'xla'}",
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0",
        ]
        if part.xla_flags is not None:
            found.append(f"XLA_FLAGS={part.xla_flags}")
        if self._smoke:
            # Nothing is measured: compilation is all that a smoke test waits for.
            found += ["JAX_PLATFORMS=cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS=1"]
        return found

    def _set(
        self, part: Part, status: str, cases: list[dict[str, Any]], **fields: Any
    ) -> None:
        self._report.set_part(
            part.name,
            status=status,
            cases=cases,
            title=part.title,
            limit_s=part.limit_s,
            xla_flags=part.xla_flags,
            **fields,
        )


def _status(ended: Ended, cases: list[dict[str, Any]]) -> str:
    if ended.exit_status is None:
        return TIMED_OUT
    if ended.exit_status != 0 and not ended.leaves_cases:
        return CRASHED  # outside of any case
    return status_of(cases)


def _close(events: EventFile, ended: Ended) -> None:
    if ended.open_case is not None and ended.reason is not None:
        status = TIMED_OUT if ended.exit_status is None else CRASHED
        events.close(ended.open_case, status, ended.reason)


def _kill(process: subprocess.Popen) -> None:
    """End a process and whatever it started; it may have ended already."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
