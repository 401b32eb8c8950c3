"""The process that compiles: `python -m jengine.aot.worker`, told by its input.

Reads one line, a `SurveyRequest`, and writes lines of JSON: what there is to compile,
then each program as it is started and done, then the end. XLA may abort the process
on what it rejects; whoever started it sees which programs were under way.
"""

import json
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax

from jengine.aot.compiler import Compiler
from jengine.aot.facts import ProgramFacts
from jengine.aot.overview import describe_survey, jobs
from jengine.aot.request import Job, SurveyRequest
from jengine.aot.survey import plan_survey
from jengine.errors import JengineError


def main() -> None:
    """Serve one request."""
    request = SurveyRequest.from_json(sys.stdin.readline())
    try:
        survey = plan_survey(request)
        todo = jobs(survey)
        with tempfile.TemporaryDirectory(prefix="jengine-aot-") as folder:
            compiler = Compiler(survey, Path(folder))
            _tell("survey", describe_survey(survey) | {"jax": jax.__version__})
            _tell("jobs", {"jobs": todo})
            compiler.compile_all(todo, _started, _done)
    except JengineError as error:
        _tell("refused", {"message": str(error)})
    else:
        _tell("end", {"cpu_s": _cpu_seconds()})


def _started(job: Job) -> None:
    _tell("started", {"job": job})


def _done(job: Job, found: ProgramFacts | str) -> None:
    if isinstance(found, str):
        _tell("failed", {"job": job, "message": found})
    else:
        _tell("done", {"job": job, "facts": found.to_dict()})


def _cpu_seconds() -> float:
    """Seconds of processor time, the assembler's included."""
    usage = [
        resource.getrusage(who)
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    return sum(used.ru_utime + used.ru_stime for used in usage)


def _tell(event: str, fields: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
