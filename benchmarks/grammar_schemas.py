"""How much of a folder of JSON schemas the engine's grammars cover.

    python benchmarks/grammar_schemas.py FOLDER [--model MODEL] [--out FILE]

Each file of the folder is a JSON object with a `schema` and `tests`, a list of objects
with `data` and `valid`: the form of JSONSchemaBench. Every instance goes through the
interface that the engine uses, id by id, and through llguidance alone beside it. The
work is done in a process of its own, which is ended when a schema takes too long, so
that no schema can hang the run.
"""

import argparse
import json
import multiprocessing
import pathlib
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

import llguidance
import numpy as np

from jengine.checkpoint import open_checkpoint
from jengine.errors import SamplingParamsError
from jengine.structured_output.constraint import Constraint, GrammarError
from jengine.structured_output.guidance import GuidanceGrammars
from jengine.structured_output.manager import GrammarManager
from jengine.structured_outputs import StructuredOutputsParams
from jengine.testing import write_byte_tokenizer
from jengine.text.tokenizer import Tokenizer, load_tokenizer

SIDES = ("engine", "llguidance alone")
START_S = 120  # for the process to start and to read its tokenizer
COUNTED = ("compiled", "refused", "hung or crashed")


class EngineSide:
    """The engine's own interface."""

    def __init__(self, tokenizer: Tokenizer, end: int) -> None:
        """Make what an engine makes."""
        self._end = end
        self._size = tokenizer.max_token_id + 1
        self._manager = GrammarManager(
            lambda: GuidanceGrammars(
                tokenizer, vocab_size=self._size, eos_token_ids=[end]
            )
        )

    def compile(self, schema: Any) -> Any:
        """Return what `takes` needs; raises what the engine would."""
        return self._manager.submit(StructuredOutputsParams(json=schema)).result()

    def takes(self, compiled: Any, token_ids: Sequence[int]) -> bool:
        """Whether each id may come next, and the end after the last."""
        constraint = compiled.constraint(())
        for index, token_id in enumerate(token_ids):
            if not self._may_come(constraint, token_id):
                return False
            if constraint.advance(token_id):  # nothing may follow
                return index == len(token_ids) - 1
        return self._may_come(constraint, self._end)

    def _may_come(self, constraint: Constraint, token_id: int) -> bool:
        mask = np.full(-(-self._size // 32), -1, np.int32)
        constraint.restrict(mask)
        return bool(mask[token_id // 32] >> token_id % 32 & 1)


class LibrarySide:
    """llguidance as it comes."""

    def __init__(self, tokenizer: Tokenizer, end: int) -> None:
        """Read the tokenizer."""
        assert tokenizer.backend is not None
        backend = tokenizer.backend.to_str()
        self._tokenizer = llguidance.LLTokenizer(backend, eos_token=end)

    def compile(self, schema: Any) -> Any:
        """Return a matcher; raises ValueError."""
        source = llguidance.LLMatcher.grammar_from_json_schema(schema)
        matcher = llguidance.LLMatcher(self._tokenizer, source, log_level=0)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher

    def takes(self, compiled: Any, token_ids: Sequence[int]) -> bool:
        """Whether the matcher takes all ids and may stop then."""
        compiled.reset()
        taken = compiled.try_consume_tokens(list(token_ids))
        return taken == len(token_ids) and compiled.is_accepting()


def judge(side: EngineSide | LibrarySide, tokenizer: Tokenizer, case: Any) -> Any:
    """Compile one schema and read its instances.

    Returns:
      `error`, None if it compiles; `seconds` for compiling; `taken`, for each instance.
    """
    start = time.perf_counter()
    try:
        compiled = side.compile(case["schema"])
    except (GrammarError, SamplingParamsError, ValueError) as error:
        return {"error": str(error).splitlines()[0], "taken": []}
    seconds = time.perf_counter() - start
    texts = [json.dumps(t["data"], ensure_ascii=False) for t in case["tests"]]
    encoded = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    taken = [side.takes(compiled, ids) for ids in encoded]
    return {"error": None, "seconds": seconds, "taken": taken}


def work(pipe: Connection, model: str | None) -> None:
    """Judge the cases that come through a pipe, for ever."""
    tokenizer = read_tokenizer(model)
    end = tokenizer.eos_token_id
    assert end is not None
    sides = [EngineSide(tokenizer, end), LibrarySide(tokenizer, end)]
    sides[0].compile(True)
    pipe.send("ready")
    while True:
        case = pipe.recv()
        pipe.send([judge(side, tokenizer, case) for side in sides])


def read_tokenizer(model: str | None) -> Tokenizer:
    """Return a checkpoint's tokenizer, or one whose ids are bytes."""
    if model is None:
        with tempfile.TemporaryDirectory() as folder:
            return load_tokenizer(write_byte_tokenizer(folder))
    checkpoint = open_checkpoint(model, with_weights=False)
    return load_tokenizer(checkpoint.tokenizer_path, gguf_file=checkpoint.gguf_file)


class Worker:
    """A process that judges; a new one is started where one was ended."""

    def __init__(self, model: str | None, patience: float) -> None:
        """Start nothing yet."""
        self._model = model
        self._patience = patience
        self._process: Any = None
        self._pipe: Any = None

    def judge(self, case: Any) -> Any:
        """Return both sides' findings, or why there are none."""
        if self._process is None:
            self._start()
        self._pipe.send(case)
        try:
            if self._pipe.poll(self._patience):
                return self._pipe.recv()
            why = f"no answer in {self._patience:g} s"
        except EOFError:
            why = "the process ended"
        self.close()
        return [{"error": why, "hung": True, "taken": []} for _ in SIDES]

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=work, args=(theirs, self._model), daemon=True
        )
        self._process.start()
        theirs.close()
        if not self._pipe.poll(START_S):
            self.close()
            raise TimeoutError(f"no tokenizer was read in {START_S} s")
        self._pipe.recv()


def read_cases(folder: pathlib.Path) -> Iterator[tuple[str, Any]]:
    """Yield each file's name and content."""
    for path in sorted(folder.glob("*.json")):
        yield path.name, json.loads(path.read_text("utf-8"))


def count(case: Any, found: Any) -> Counter[str]:
    """Count what one side made of one file."""
    counts: Counter[str] = Counter()
    if found["error"] is not None:
        counts["hung or crashed" if found.get("hung") else "refused"] += 1
        return counts
    counts["compiled"] += 1
    for test, taken in zip(case["tests"], found["taken"], strict=True):
        kind = "valid" if test["valid"] else "invalid"
        counts[kind] += 1
        counts[f"{kind} right"] += taken == test["valid"]
    return counts


def report(totals: dict[str, Counter[str]], refused: dict[str, str]) -> None:
    """Print what was counted, and why schemas were refused."""
    for side, counts in totals.items():
        parts = [f"{counts[word]} {word}" for word in COUNTED]
        print(f"{side}: {', '.join(parts)}")
        print(
            f"  instances: {counts['valid right']} of {counts['valid']} valid ones "
            f"accepted, {counts['invalid right']} of {counts['invalid']} invalid ones "
            "refused"
        )
    print("refused by the engine, by the first unsupported feature:")
    for error, times in Counter(refused.values()).most_common():
        print(f"  {times:4} {error}")


def main() -> None:
    """Judge all and print."""
    parser = argparse.ArgumentParser(description="Judge a folder of schemas.")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--model", help="checkpoint whose tokenizer to use")
    parser.add_argument("--patience", type=float, default=60, help="seconds a schema")
    parser.add_argument("--out", type=pathlib.Path, help="write findings as JSON")
    options = parser.parse_args()
    worker = Worker(options.model, options.patience)
    totals: dict[str, Counter[str]] = {side: Counter() for side in SIDES}
    refused: dict[str, str] = {}
    findings: dict[str, Any] = {}
    for name, case in read_cases(options.folder):
        found = dict(zip(SIDES, worker.judge(case), strict=True))
        findings[name] = found
        for side in SIDES:
            totals[side] += count(case, found[side])
        if found["engine"]["error"] is not None:
            refused[name] = found["engine"]["error"]
        taken = [(found[side]["error"] is None, found[side]["taken"]) for side in SIDES]
        if taken[0] != taken[1]:
            print(f"{name}: the two differ: {found}")
    worker.close()
    report(totals, refused)
    if options.out is not None:
        result = {"totals": totals, "schemas": findings}
        options.out.write_text(json.dumps(result, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
