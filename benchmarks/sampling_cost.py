"""What sampling features and grammars cost, beside a greedy step of the same rows.

    python benchmarks/sampling_cost.py MODEL [--parts] [--json]

64 rows decode at once. Each kind of request takes its turn in every round, so that a
busy machine slows all of them alike: prompts first, which is not timed, then a number
of decoding steps, which is; then the requests are aborted. A kind's ratio is the median
over the rounds of its time divided by the greedy time of the same round.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

from jengine import LLM, SamplingParams, StructuredOutputsParams

PROMPT_TOKENS = 4
UNTIMED_STEPS = 3  # the prompts, and what is in flight beside them
SCHEMA = {
    "type": "array",
    "minItems": 1000,  # no row ends while it is timed
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "size": {"type": "number", "minimum": 0},
            "kind": {"enum": ["file", "folder", "link"]},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["name", "size"],
        "additionalProperties": False,
    },
}
ENDLESS: dict[str, Any] = {"max_tokens": None, "ignore_eos": True}
RANDOM: dict[str, Any] = {"temperature": 0.8}
FILTERS: dict[str, Any] = {"top_k": 40, "top_p": 0.9, "min_p": 0.05}
PENALTIES: dict[str, Any] = {
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "repetition_penalty": 1.1,
    "logit_bias": {11: 2.0, 42: -2.0, 1000: -100.0},
}
STOPS: dict[str, Any] = {"stop": ["\x01\x02"], "stop_token_ids": [3], "min_tokens": 20}
LOGPROBS: dict[str, Any] = {"logprobs": 5}
BAD_WORDS: dict[str, Any] = {"bad_words": ["never", "ever after"]}
ALL = RANDOM | FILTERS | PENALTIES | STOPS | LOGPROBS | BAD_WORDS

MakeParams = Callable[[int], SamplingParams]


def sampling(options: dict[str, Any]) -> MakeParams:
    """Return what makes each row's parameters: a random row has a seed of its own."""

    def make(row: int) -> SamplingParams:
        own: dict[str, Any] = {"temperature": 0.0} | ENDLESS | options
        return SamplingParams(**own, seed=row if own["temperature"] else None)

    return make


KINDS: dict[str, MakeParams] = {
    "greedy": sampling({}),
    "all features": sampling(ALL),
    "json schema": sampling(
        {"structured_outputs": StructuredOutputsParams(json=SCHEMA)}
    ),
}
PARTS: dict[str, MakeParams] = {
    "random": sampling(RANDOM),
    "top-k, top-p, min-p": sampling(RANDOM | FILTERS),
    "penalties, bias": sampling(PENALTIES),
    "logprobs": sampling(LOGPROBS),
    "stops": sampling(STOPS),
    "bad words": sampling(BAD_WORDS),
}


def run(llm: LLM, make: MakeParams, rows: int, steps: int) -> float:
    """Return milliseconds of a step in which all rows decode."""
    engine = llm.llm_engine
    ids = [str(row) for row in range(rows)]
    for row in range(rows):
        prompt = [1000 + 7 * row + place for place in range(PROMPT_TOKENS)]
        engine.add_request(ids[row], {"prompt_token_ids": prompt}, make(row))
    for _ in range(UNTIMED_STEPS):
        engine.step()
    start = time.perf_counter()
    for _ in range(steps):
        outputs = engine.step()
        assert len(outputs) == rows
    seconds = time.perf_counter() - start
    engine.abort_request(ids)
    while engine.has_unfinished_requests():
        engine.step()
    return 1e3 * seconds / steps


def measure(
    llm: LLM, kinds: dict[str, MakeParams], options: argparse.Namespace
) -> dict[str, dict[str, float]]:
    """Return each kind's median milliseconds a step, and its ratio to the first."""
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(options.rounds + 1):
        for kind, make in kinds.items():
            taken = run(llm, make, options.rows, options.steps if number else 2)
            if number:  # the first round compiles
                times[kind].append(taken)
    greedy = next(iter(times.values()))
    return {
        kind: {
            "ms": statistics.median(taken),
            "ratio": statistics.median(
                one / base for one, base in zip(taken, greedy, strict=True)
            ),
        }
        for kind, taken in times.items()
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Cost of sampling features.")
    parser.add_argument("model")
    parser.add_argument("--parts", action="store_true", help="each feature alone, too")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--steps", type=int, default=16, help="timed steps of a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--cache", help="folder of compiled programs")
    options = parser.parse_args()
    llm = LLM(
        options.model,
        max_num_seqs=options.rows,
        max_num_batched_tokens=options.rows * PROMPT_TOKENS,
        max_model_len=128,
        num_gpu_blocks_override=options.rows * 8 + 1,
        compilation_cache_dir=options.cache,
    )
    kinds = KINDS | PARTS if options.parts else KINDS
    found = measure(llm, kinds, options)
    if options.json:
        print(json.dumps({"rows": options.rows, "kinds": found}))
        return
    print(f"{options.rows} decoding rows, median ms a step of {options.rounds} rounds")
    for kind, numbers in found.items():
        print(f"{kind:>20}{numbers['ms']:>10.1f}{numbers['ratio']:>10.2f}")


if __name__ == "__main__":
    main()
