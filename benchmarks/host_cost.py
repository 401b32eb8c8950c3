"""What the host does in a step of 256 decoding rows: schedule, pack, update.

    python benchmarks/host_cost.py [--json]

A step is planned before the tokens of the one before it are known, as the engine
does by default. Three engines take turns, so that a busy machine slows all of them
alike: a plain one, one with 100,000 requests waiting, one with 1,000,000 blocks. A
step costs O(rows), so the ratios should be 1.
"""

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jengine.core.plan import StepPlan
from jengine.core.request import Request
from jengine.core.scheduler import Scheduler
from jengine.runner.bucket import make_buckets
from jengine.runner.mirror import SeatMirror
from jengine.runner.pack import pack_step
from jengine.runner.results import unpack_result

ROWS = 256
BLOCK_SIZE = 16
PROMPT_TOKENS = 32
MAX_TOKENS = 4096
NUM_BLOCKS = ROWS * MAX_TOKENS // BLOCK_SIZE + 1
PARTS = ("schedule", "pack", "update")


class Step(NamedTuple):
    """Seconds that one step took on the host."""

    schedule: float
    pack: float
    update: float


class Bench:
    """A scheduler whose 256 requests all decode."""

    def __init__(self, *, num_waiting: int = 0, num_blocks: int = NUM_BLOCKS) -> None:
        """Fill the seats, then the queue."""
        self.scheduler = Scheduler(
            num_blocks=num_blocks,
            block_size=BLOCK_SIZE,
            token_budget=ROWS * PROMPT_TOKENS,
            max_num_seqs=ROWS,
        )
        max_blocks = MAX_TOKENS // BLOCK_SIZE
        self.mirror = SeatMirror(max_num_seqs=ROWS, max_blocks=max_blocks)
        self.buckets = make_buckets(
            max_num_seqs=ROWS,
            token_budget=ROWS * PROMPT_TOKENS,
            max_blocks=max_blocks,
        )
        self.sampled = np.full((ROWS, 1), 7, np.int32)
        self.in_flight: tuple[StepPlan, Sequence[int]] | None = None
        self._ask(ROWS)
        self.step()  # the prompts
        self._ask(num_waiting)

    def _ask(self, count: int) -> None:
        first = self.scheduler.num_unfinished
        for number in range(first, first + count):
            prompt = [number % 1000] * PROMPT_TOKENS
            self.scheduler.add(
                Request(
                    str(number), prompt, max_total_tokens=MAX_TOKENS, arrival=number
                )
            )

    def step(self) -> Step:
        """Time one step: plan and pack it, then learn what the one before sampled."""
        start = time.perf_counter()
        plan = self.scheduler.schedule()
        scheduled = time.perf_counter()
        self.mirror.apply(plan)
        packed = pack_step(plan, self.mirror, self.buckets)
        after_pack = time.perf_counter()
        if self.in_flight is not None:
            self._update(*self.in_flight)
        end = time.perf_counter()
        self.in_flight = plan, packed.rows.sampling_rows
        return Step(scheduled - start, after_pack - scheduled, end - after_pack)

    def _update(self, plan: StepPlan, sampling_rows: Sequence[int]) -> None:
        result = unpack_result(
            self.sampled,
            step=plan.step,
            num_rows=len(plan.rows),
            sampling_rows=sampling_rows,
            lines=sampling_rows,
            wanted=None,
            vocab_size=50_000,
        )
        self.scheduler.update(plan, result)


def measure(benches: dict[str, Bench], rounds: int) -> dict[str, dict[str, float]]:
    """Return median microseconds of each part, and ratios to the first bench."""
    times: dict[str, list[Step]] = {name: [] for name in benches}
    for _ in range(rounds):
        for name, bench in benches.items():
            times[name].append(bench.step())
    medians = {
        name: {
            part: 1e6 * statistics.median(getattr(step, part) for step in steps)
            for part in PARTS
        }
        for name, steps in times.items()
    }
    # The sum of medians: on a busy machine most steps lose the CPU somewhere.
    for parts in medians.values():
        parts["total"] = sum(parts.values())
    plain = next(iter(medians.values()))["total"]
    for parts in medians.values():
        parts["ratio"] = parts["total"] / plain
    return medians


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--rounds", type=int, default=1000, help="steps of each engine")
    options = parser.parse_args()
    if not 1 <= options.rounds < MAX_TOKENS - PROMPT_TOKENS - 1:
        parser.error(f"--rounds is {options.rounds}; use 1 to 4000")
    benches = {
        "plain": Bench(),
        "100,000 waiting": Bench(num_waiting=100_000),
        "1,000,000 blocks": Bench(num_blocks=1_000_000),
    }
    found = measure(benches, options.rounds)
    if options.json:
        print(json.dumps({"rows": ROWS, "rounds": options.rounds, "median_us": found}))
        return
    print(f"{ROWS} decoding rows, median us of {options.rounds} steps")
    print(f"{'':>18}" + "".join(f"{part:>10}" for part in (*PARTS, "total", "ratio")))
    for name, parts in found.items():
        numbers = "".join(f"{parts[part]:>10.0f}" for part in (*PARTS, "total"))
        print(f"{name:>18}{numbers}{parts['ratio']:>10.2f}")


if __name__ == "__main__":
    main()
