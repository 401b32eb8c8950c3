"""Starts the worker, reads what it tells, and goes on after it has crashed.

XLA aborts its process on some programs. What was under way then is compiled again,
each alone in a worker of its own, so that only the guilty ones are given up.
"""

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from jengine.aot.facts import ProgramFacts
from jengine.aot.request import Job, SurveyRequest
from jengine.errors import JengineError

_LAST_WORDS = 600  # characters of a crashed worker's log


class SurveyError(JengineError):
    """There is nothing to compile, or no worker could be started."""


@dataclasses.dataclass(slots=True)
class Findings:
    """What the workers have told so far.

    Attributes:
      survey: what there is to compile; empty before it is known.
      jobs: what is to be compiled.
      under_way: what the present worker has begun.
      facts: of compiled programs.
      failures: why others could not be compiled.
      cpu_s: processor time of the workers that came to their end.
    """

    survey: dict[str, Any] = dataclasses.field(default_factory=dict)
    jobs: list[Job] = dataclasses.field(default_factory=list)
    under_way: list[Job] = dataclasses.field(default_factory=list)
    facts: dict[Job, ProgramFacts] = dataclasses.field(default_factory=dict)
    failures: dict[Job, str] = dataclasses.field(default_factory=dict)
    cpu_s: float = 0.0

    @property
    def missing(self) -> list[Job]:
        """What is neither compiled nor given up."""
        ended = {*self.facts, *self.failures}
        return [job for job in self.jobs if job not in ended]


def run_survey(
    request: SurveyRequest,
    environment: Mapping[str, str],
    progress: Callable[[Findings], None] = lambda _: None,
    command: Sequence[str] = (sys.executable, "-P", "-m", "jengine.aot.worker"),
) -> Findings:
    """Compile all programs of a survey in other processes.

    Args:
      request: what is asked.
      environment: variables of the worker.
      progress: called after each program.
      command: starts a worker.

    Raises:
      SurveyError: the request is refused, or the worker crashed before its work.
    """
    findings = Findings()
    start = _Starter(command, environment)
    log = _work(start, request, findings, progress)
    while findings.missing or not findings.jobs:
        suspects, findings.under_way = findings.under_way, []
        if not suspects:  # it crashed between programs, or before all of them
            raise SurveyError(f"the compiler's process crashed: {log}")
        for job in suspects:
            alone = dataclasses.replace(request, only=(job,), threads=1)
            log = _work(start, alone, findings, progress)
            if job in findings.missing:
                findings.failures[job] = f"the compiler crashed: {log}"
                progress(findings)
        findings.under_way = []
        if findings.missing:
            rest = dataclasses.replace(request, only=tuple(findings.missing))
            log = _work(start, rest, findings, progress)
    return findings


@dataclasses.dataclass(frozen=True, slots=True)
class _Starter:
    command: Sequence[str]
    environment: Mapping[str, str]

    def lines(self, request: SurveyRequest, log: Any) -> Generator[str, None, None]:
        """Yield what a worker writes; its log goes to a file.

        Its own files go with it, also where it crashes or is killed.
        """
        with (
            tempfile.TemporaryDirectory(prefix="jengine-aot-") as scratch,
            subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=worker_environment(self.environment) | {"TMPDIR": scratch},
            ) as process,
        ):
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                with contextlib.suppress(BrokenPipeError):  # its log says why
                    process.stdin.write(request.to_json() + "\n")
                    process.stdin.close()
                yield from process.stdout
            finally:
                process.kill()  # it may have been left before its end


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return a worker's variables: no device is used, and it imports what we do."""
    path = os.pathsep.join(folder for folder in sys.path if folder)
    return {**environment, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path}


def _work(
    start: _Starter,
    request: SurveyRequest,
    findings: Findings,
    progress: Callable[[Findings], None],
) -> str:
    """Run one worker to its end and return the last words of its log."""
    with tempfile.TemporaryFile(mode="w+", errors="replace") as log:
        with contextlib.closing(start.lines(request, log)) as lines:
            for line in lines:
                _take(json.loads(line), findings, progress)
        log.seek(0)
        return " ".join(log.read()[-_LAST_WORDS:].split()) or "it left no message"


def _take(
    told: dict[str, Any], findings: Findings, progress: Callable[[Findings], None]
) -> None:
    match told.pop("event"):
        case "refused":
            raise SurveyError(told["message"])
        case "survey":
            findings.survey = told
        case "jobs":
            # A worker that compiles a part knows of nothing else.
            findings.jobs = findings.jobs or [Job(*job) for job in told["jobs"]]
        case "started":
            findings.under_way.append(Job(*told["job"]))
        case "end":
            findings.cpu_s += told["cpu_s"]
        case "done" | "failed" as event:
            job = Job(*told["job"])
            findings.under_way.remove(job)
            if event == "done":
                findings.facts[job] = ProgramFacts.from_dict(told["facts"])
            else:
                findings.failures[job] = told["message"]
            progress(findings)
