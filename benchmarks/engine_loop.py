"""Where the time of a run goes, and what a common start saves.

    python benchmarks/engine_loop.py MODEL [--parts host share prefix] [--json]

Three parts, by the engine's own metrics. "host": work of the host in a step in which
all rows decode, everything included from planning to text. "share": of the wall time of
a mixed run, what the host waited for the compiled programs (which they took at least)
and what passed between their start and their result (at most). "prefix": the same
prompts with a common start, with the prefix cache and without, taking turns.
"""

import argparse
import json
import statistics
import time
from typing import Any

import numpy as np

from jengine import LLM, SamplingParams
from jengine.metrics import Histogram

COMMON, OWN = 512, 16  # tokens of a prompt in part "prefix"
STEP = "jengine:step_{}_seconds"
PARTS = ("host", "share", "prefix")


def spent(llm: LLM) -> dict[str, Any]:
    """Return seconds of host, wait and device so far, and steps."""
    found = {m.name: m for m in llm.get_metrics() if isinstance(m, Histogram)}
    sums = {part: found[STEP.format(part)].sum for part in ("host", "wait", "device")}
    return sums | {"steps": found[STEP.format("host")].count}


def prompts_of(rng: np.random.Generator, lengths: Any) -> list[dict[str, Any]]:
    """Return prompts of random ids."""
    return [{"prompt_token_ids": rng.integers(50, 1500, n).tolist()} for n in lengths]


def params_of(lengths: Any) -> list[SamplingParams]:
    """Return greedy parameters that end at these lengths."""
    return [
        SamplingParams(temperature=0, max_tokens=int(n), ignore_eos=True)
        for n in lengths
    ]


def run(llm: LLM, prompts: Any, params: Any) -> dict[str, float]:
    """Return what a run took: wall seconds, and the differences of `spent`."""
    before, start = spent(llm), time.perf_counter()
    llm.generate(prompts, params, use_tqdm=False)
    wall = time.perf_counter() - start
    return {name: spent(llm)[name] - before[name] for name in before} | {"wall": wall}


def host(model: str, rows: int, rounds: int) -> dict[str, float]:
    """Return microseconds of the host in a step of so many decoding rows."""
    llm = LLM(model, max_num_seqs=rows, max_model_len=256, **pool(rows, 128))
    rng = np.random.default_rng(0)
    prompts, params = prompts_of(rng, [4] * rows), params_of([64] * rows)
    run(llm, prompts, params)  # compiles
    found = [run(llm, prompts, params) for _ in range(rounds)]
    return {"us": 1e6 * statistics.median(one["host"] / one["steps"] for one in found)}


def share(model: str, requests: int) -> dict[str, float]:
    """Return the device's share of a mixed run, at least and at most."""
    llm = LLM(model, max_num_seqs=64, max_model_len=256, **pool(64, 256))
    rng = np.random.default_rng(1)
    lengths = rng.integers(16, 128, requests)
    params = params_of(rng.integers(8, 64, requests))
    run(llm, prompts_of(rng, lengths), params)  # compiles
    # Others of the same lengths: what is cached would make other, uncompiled steps.
    found = run(llm, prompts_of(rng, lengths), params)
    shares = {name: found[name] / found["wall"] for name in ("wait", "device", "host")}
    return {"wall_s": found["wall"], "steps": found["steps"]} | shares


def prefix(model: str, requests: int, rounds: int) -> dict[str, float]:
    """Return the ratios of computed tokens and of time, cache off over on."""
    options = {"max_num_seqs": 64, "max_model_len": COMMON + OWN + 16}
    sizes = options | pool(64, COMMON + OWN + 16)
    llms = {on: LLM(model, enable_prefix_caching=on, **sizes) for on in (True, False)}
    rng = np.random.default_rng(2)
    start = rng.integers(50, 1500, COMMON).tolist()
    walls: dict[bool, list[float]] = {True: [], False: []}
    computed = {}
    for number in range(rounds + 1):
        own = rng.integers(50, 1500, (requests, OWN)).tolist()
        for on, llm in llms.items():
            assert llm.reset_prefix_cache()
            before = llm.stats.num_scheduled_tokens
            prompts = [{"prompt_token_ids": start + ids} for ids in own]
            took = run(llm, prompts, params_of([1] * requests))["wall"]
            computed[on] = llm.stats.num_scheduled_tokens - before
            if number:  # the first round compiles
                walls[on].append(took)
    times = [off / on for on, off in zip(walls[True], walls[False], strict=True)]
    return {
        "computed_with_cache": computed[True],
        "computed_without": computed[False],
        "tokens": computed[False] / computed[True],
        "time": statistics.median(times),
    }


def pool(rows: int, tokens: int) -> dict[str, int]:
    """Return a KV pool that holds so many rows of so many tokens."""
    return {"num_gpu_blocks_override": rows * -(-tokens // 16) + 1}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Where the time of a run goes.")
    parser.add_argument("model")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--requests", type=int, default=256, help="of part share")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    model, rounds = options.model, options.rounds
    measures = {
        "host": lambda: {n: host(model, n, rounds) for n in (64, 256)},
        "share": lambda: {options.requests: share(model, options.requests)},
        "prefix": lambda: {64: prefix(model, 64, rounds)},
    }
    found = {part: measures[part]() for part in options.parts}
    if options.json:
        print(json.dumps(found))
        return
    for part, by_size in found.items():
        for size, numbers in by_size.items():
            shown = (f"{name} {value:.4g}" for name, value in numbers.items())
            print(part, size, *shown)


if __name__ == "__main__":
    main()
