"""Runs the cases of a part and writes down each as soon as it is known."""

import time
import traceback
from collections.abc import Callable, Collection, Mapping
from typing import Any

from jengine.bench.gpu_check.events import FAILED, OK, SKIPPED, event_line


class DeviceLostError(RuntimeError):
    """The device answers no more in this process; a new one may use it."""


class SkipCaseError(Exception):
    """A case that this machine cannot run; the message says why."""


class CheckError(AssertionError):
    """A case that ran, and whose result is wrong.

    Attributes:
      fields: what the record says besides.
    """

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.fields = fields


class Recorder:
    """Runs a part's cases one after another and writes down each.

    Attributes:
      smoke: whether shapes must be small enough for an interpreter on a CPU.
      serial: whether nothing may be compiled ahead, because an earlier process died.
    """

    def __init__(
        self,
        write: Callable[[str], Any],
        *,
        seconds: float,
        done: Collection[str] = (),
        smoke: bool = False,
        serial: bool = False,
        is_alive: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the clock of a part.

        Args:
          write: takes a line for each event, and keeps it whatever comes after.
          seconds: until the part must have ended.
          done: cases that an earlier process has dealt with.
          smoke: see above.
          serial: see above.
          is_alive: whether the device still computes; asked after a case has failed.
          clock: seconds.
        """
        self.smoke = smoke
        self.serial = serial
        self._write_line = write
        self._done = frozenset(done)
        self._is_alive = is_alive
        self._clock = clock
        self._end = clock() + seconds

    @property
    def left_s(self) -> float:
        """Seconds that the part still has."""
        return self._end - self._clock()

    def is_done(self, case: str) -> bool:
        """Whether an earlier process has dealt with a case."""
        return case in self._done

    def measure(
        self, case: str, run: Callable[[], Mapping[str, Any]], *, least_s: float = 1.0
    ) -> Mapping[str, Any] | None:
        """Run a case and write down what it returns, or how it failed.

        Args:
          case: its name, unique in the part.
          run: returns fields for the record; one of them, `summary`, is what the
            table shows. Exceptions become part of the record.
          least_s: seconds that it needs; with less left it is skipped.

        Returns:
          What `run` returned; None if it did not run or failed.

        Raises:
          DeviceLostError: the device has broken down; the record is written.
        """
        if self.is_done(case):
            return None
        if self.left_s < least_s:
            self.skip(case, f"{self.left_s:.0f} s left; it needs {least_s:.0f}")
            return None
        self._write(event="start", case=case)
        start = self._clock()
        try:
            fields = run()
        except SkipCaseError as error:
            self.skip(case, str(error))
        except Exception as error:  # whatever it is, the other cases shall run
            self._fail(case, error, self._clock() - start)
        else:
            self._finish(case, OK, {**fields, "case_s": self._clock() - start})
            return fields
        return None

    def skip(self, case: str, reason: str) -> None:
        """Write down that a case does not run, and why."""
        if not self.is_done(case):
            self._finish(case, SKIPPED, {"reason": reason})

    def _fail(self, case: str, error: Exception, seconds: float) -> None:
        fields = dict(error.fields) if isinstance(error, CheckError) else {}
        if not isinstance(error, CheckError):
            fields["traceback"] = traceback.format_exc()[-4000:]
        reason = f"{type(error).__name__}: {error}"[:1000]
        self._finish(case, FAILED, {**fields, "reason": reason, "case_s": seconds})
        if not isinstance(error, CheckError) and not self._is_alive():
            raise DeviceLostError(f"the device is lost since {case}") from error

    def _finish(self, case: str, status: str, fields: Mapping[str, Any]) -> None:
        self._write(event="end", case=case, status=status, **fields)

    def _write(self, **event: Any) -> None:
        self._write_line(event_line(event))
