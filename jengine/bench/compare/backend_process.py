"""An engine in a process of its own: started, asked, paused and ended."""

import contextlib
import dataclasses
import json
import os
import pathlib
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

import psutil

from jengine.errors import JengineError

WORKER = pathlib.Path(__file__).with_name("worker.py")
ENGINES = pathlib.Path(__file__).with_name("engines")
_LAST_WORDS = 1500  # characters of a log that ended without an answer


class BackendError(JengineError):
    """An engine could not do what it was asked."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start an engine.

    Attributes:
      backend: its name.
      engine_file: the Python file that knows it.
      python: the interpreter that has it.
      threads: CPUs that it may use.
      environment: its variables.
    """

    backend: str
    engine_file: pathlib.Path
    python: str
    threads: int
    environment: Mapping[str, str] = dataclasses.field(hash=False)


class BackendProcess:
    """One running engine; its process group stands still unless it is asked."""

    def __init__(self, launch: Launch, log: pathlib.Path) -> None:
        """Start the process; it has loaded nothing yet.

        Args:
          launch: what to start.
          log: gets what it writes.

        Raises:
          BackendError: there is no such interpreter.
        """
        self.backend = launch.backend
        self._log = log
        answers, self._to_close = os.pipe()
        self._answers = os.fdopen(answers, "rb", buffering=0)
        self._unread = b""
        try:
            self._process = self._start(launch)
        except OSError as error:
            self._answers.close()
            raise BackendError(f"{launch.python}: {error.strerror}") from error
        finally:
            os.close(self._to_close)
        self._peak_rss: dict[int, int] = {}

    def ask(self, question: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send a question and return its answer; the process runs meanwhile.

        Raises:
          BackendError: the engine says that it failed, ended, or took too long.
        """
        self._signal(signal.SIGCONT)
        try:
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # its log says why
                self._process.stdin.write(json.dumps(question).encode() + b"\n")
                self._process.stdin.flush()
            answer = json.loads(self._read_line(timeout_s))
            self._note_memory()
        finally:
            self._signal(signal.SIGSTOP)
        if "error" in answer:
            raise BackendError(answer["error"])
        return answer

    def peak_rss_bytes(self) -> int:
        """Most memory that its processes have held, each at its own peak."""
        return sum(self._peak_rss.values())

    def close(self) -> None:
        """End the process and whatever it started."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._answers.close()
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()

    def _start(self, launch: Launch) -> subprocess.Popen[bytes]:
        command = [launch.python, str(WORKER), "--engine", str(launch.engine_file)]
        command += ["--answers", str(self._to_close)]
        command += ["--threads", str(launch.threads)]
        command += ["--started", repr(time.monotonic())]
        with open(self._log, "wb") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(self._to_close,),
                env=dict(launch.environment),
                start_new_session=True,
            )

    def _read_line(self, timeout_s: float) -> bytes:
        end = time.monotonic() + timeout_s
        while b"\n" not in self._unread:
            left = end - time.monotonic()
            ready, _, _ = select.select([self._answers], [], [], max(0.0, left))
            if not ready:
                raise BackendError(
                    f"no answer in {timeout_s:.0f} s{self._last_words()}"
                )
            piece = self._answers.read(1 << 16)
            if not piece:
                status = self._process.wait()
                raise BackendError(f"it ended with {status}{self._last_words()}")
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _last_words(self) -> str:
        text = self._log.read_text("utf-8", errors="replace")[-_LAST_WORDS:].strip()
        return f"; its log ends: {text}" if text else ""

    def _note_memory(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(self._process.pid)
            for one in [root, *root.children(recursive=True)]:
                known = self._peak_rss.get(one.pid, 0)
                self._peak_rss[one.pid] = max(known, _peak_rss_of(one))

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def find_engine(backend: str) -> pathlib.Path:
    """Return the file that knows an engine.

    What follows a "@" only tells two settings of one engine apart.

    >>> find_engine("llama-cpp@64").name
    'llama_cpp_engine.py'

    Raises:
      BackendError: no such engine is known.
    """
    engine = engine_of(backend)
    path = ENGINES / f"{engine.replace('-', '_')}_engine.py"
    if not path.is_file():
        raise BackendError(f"{backend!r} is unknown; known: {', '.join(known())}")
    return path


def engine_of(backend: str) -> str:
    """Return a backend's engine, its name without what tells settings apart."""
    return backend.partition("@")[0]


def known() -> Sequence[str]:
    """Return the names of the engines that can be compared."""
    found = [path.stem.removesuffix("_engine") for path in ENGINES.glob("*_engine.py")]
    return sorted(name.replace("_", "-") for name in found)


def _peak_rss_of(process: psutil.Process) -> int:
    """Return the most memory that a process has held, in bytes."""
    with contextlib.suppress(OSError):
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text("utf-8")
        for line in status.splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    with contextlib.suppress(psutil.Error):
        return process.memory_info().rss  # where there is no /proc
    return 0
