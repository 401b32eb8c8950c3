"""Runs one engine for `jengine bench compare`, in that engine's own Python.

It is started by its path and needs nothing but the standard library, because the
Python that runs it may not have jengine. It reads one JSON object a line from stdin
and answers each by a line on a pipe of its own: engines write to stdout.
"""

import sys

if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file; its names are not meant for engines

import argparse
import ctypes
import importlib.util
import json
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of <sys/prctl.h>


def main(arguments: Sequence[str] | None = None) -> int:
    """Load the engine, then generate what is asked until stdin ends."""
    flags = _parse(arguments)
    end_with_parent()
    limit_cpus(flags.threads)
    with os.fdopen(flags.answers, "w", buffering=1, encoding="utf-8") as answers:
        return serve(flags.engine, sys.stdin, answers.write, started=flags.started)


def end_with_parent() -> None:
    """Have Linux end this process with the one that started it.

    It may stand still at that time, and would do so for ever.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


def serve(
    engine_file: str,
    questions: Iterable[str],
    tell: Callable[[str], object],
    *,
    started: float,
) -> int:
    """Answer questions: first what to load, then what to generate.

    Args:
      engine_file: the Python file that knows the engine.
      questions: JSON objects, one a line.
      tell: takes one JSON object, a line, for each.
      started: `time.monotonic()` when this process was started.

    Returns:
      The exit status: 1 if the engine failed.
    """
    try:
        engine = None
        for line in questions:
            question = json.loads(line)
            if engine is None:
                engine = load_module(engine_file).load(question)
                answer = {"init_s": time.monotonic() - started, **engine.versions()}
            else:
                answer = run(engine, question, started=started)
            tell(json.dumps(answer) + "\n")
    except Exception as error:
        traceback.print_exc()
        tell(json.dumps({"error": f"{type(error).__name__}: {error}"}) + "\n")
        return 1
    return 0


def run(engine: Any, question: dict[str, Any], *, started: float) -> dict[str, Any]:
    """Generate once and measure it.

    Returns:
      `token_ids` of each prompt, `seconds` that it took, and `since_start_s` from the
      start of the process to the end.
    """
    start = time.perf_counter()
    token_ids = engine.generate(question["prompts"], question["output_tokens"])
    seconds = time.perf_counter() - start
    since_start = time.monotonic() - started
    return {"token_ids": token_ids, "seconds": seconds, "since_start_s": since_start}


def load_module(path: str) -> Any:
    """Import a file that is in no package that this Python knows."""
    spec = importlib.util.spec_from_file_location("bench_compare_engine", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def limit_cpus(threads: int) -> None:
    """Keep this process, and all that it starts, on so many CPUs."""
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, allowed[:threads])


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--engine", required=True, help="the Python file of one")
    parser.add_argument("--answers", required=True, type=int, help="file descriptor")
    parser.add_argument("--threads", required=True, type=int)
    parser.add_argument("--started", required=True, type=float)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
