"""Decode of a whole engine on random weights, against what the card can do.

The engine plans, dispatches one step ahead and reads its tokens, as `LLM.generate`
does; only checkpoint and tokenizer are missing. The roofline of a step is the longer
of its bytes over the measured copy and its operations over the measured product.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jengine.aot.cost import StepShape, model_sizes, step_work
from jengine.bench.gpu_check.arithmetic import Ceiling
from jengine.bench.gpu_check.ceilings import measure_ceiling
from jengine.bench.gpu_check.decode_load import Load, run_load
from jengine.bench.gpu_check.engine_load import EngineSize, RunnerProbe, make_engine
from jengine.bench.gpu_check.model_shapes import LLAMA_1B, LLAMA_8B, TINY
from jengine.bench.gpu_check.recorder import Recorder
from jengine.bench.gpu_check.target import Target, find_target
from jengine.engine import LLMEngine
from jengine.runner.bucket import StepBucket
from jengine.runner.load import LoadedModel
from jengine.runner.program_keys import (
    DecodeKey,
    ForwardKey,
    ProgramKey,
    SampleKey,
)
from jengine.runner.random_model import random_model
from jengine.runner.sample import SampleMode

_GIB = 2**30


class Bench(NamedTuple):
    """One model and the loads that it is given, the most valuable first.

    Attributes:
      name: of the model's shape.
      config: its `config.json`.
      loads: see above.
      token_budget: of the engine; also the padded size of each step with a prompt.
      max_model_len: holds the longest request.
    """

    name: str
    config: Mapping[str, Any]
    loads: tuple[Load, ...]
    token_budget: int
    max_model_len: int

    @property
    def size(self) -> EngineSize:
        """The limits of an engine that takes each of the loads."""
        block_size = 16
        tokens = [
            load.batch * (load.prompt + load.max_tokens(self.token_budget) + block_size)
            for load in self.loads
        ]
        return EngineSize(
            rows=tuple(sorted(load.batch for load in self.loads)),
            token_budget=self.token_budget,
            max_model_len=self.max_model_len,
            num_blocks=max(tokens) // block_size + 2,
            block_size=block_size,
        )


_LOADS = (
    Load(batch=1, prompt=1024, steps=96, traced=8),
    Load(batch=64, prompt=1024, steps=64, traced=8),
    Load(batch=8, prompt=1024, steps=64, traced=8),
    Load(batch=256, prompt=512, steps=48, traced=8),
)
BENCHES = (
    Bench("Llama-3.2-1B", LLAMA_1B, _LOADS, 8192, 1536),
    Bench("Llama-3.1-8B", LLAMA_8B, _LOADS, 8192, 1536),
)
SMOKE = (Bench("tiny", TINY, (Load(batch=2, prompt=20, steps=3, traced=2),), 32, 96),)


class Ready(NamedTuple):
    """A model in an engine."""

    bench: Bench
    model: LoadedModel
    engine: LLMEngine
    probe: RunnerProbe
    ceiling: Ceiling
    programs: set[ProgramKey]


def run(recorder: Recorder) -> None:
    """Measure every load of every model."""
    target = find_target()
    ceilings: list[Ceiling] = []
    recorder.measure(
        "ceilings" + " again" * recorder.serial,
        lambda: find_ceiling(target, ceilings, smoke=recorder.smoke),
        least_s=2.0,
    )
    for bench in SMOKE if recorder.smoke else BENCHES:
        names = [f"{bench.name}, batch {load.batch}" for load in bench.loads]
        if not ceilings or all(recorder.is_done(name) for name in names):
            continue
        ready: list[Ready] = []
        for name, load in zip(names, bench.loads, strict=True):
            recorder.measure(
                name,
                lambda bench=bench, load=load, ready=ready: measure(
                    bench, load, target, ceilings[0], ready
                ),
                least_s=15.0 if not recorder.smoke else 1.0,
            )


def find_ceiling(
    target: Target, found: list[Ceiling], *, smoke: bool
) -> Mapping[str, Any]:
    """Measure what the card does, and put it into `found`."""
    ceiling = measure_ceiling(
        target,
        num_bytes=2**20 if smoke else 2 * _GIB,
        product_size=64 if smoke else 8192,
    )
    found.append(ceiling)
    return {
        "copy_bytes_per_s": ceiling.bytes_per_s,
        "product_flops_per_s": ceiling.flops_per_s,
        "summary": f"copy {ceiling.bytes_per_s / 1e12:.2f} TB/s, "
        f"product {ceiling.flops_per_s / 1e12:.0f} TFLOP/s",
    }


def measure(
    bench: Bench, load: Load, target: Target, ceiling: Ceiling, ready: list[Ready]
) -> Mapping[str, Any]:
    """Measure one load; the first of a model makes the model."""
    if not ready:
        ready.append(_make_ready(bench, target, ceiling))
    one = ready[0]
    compile_s = _compile(one, load)
    vocab_size = one.model.config.vocab_size
    times = run_load(
        one.engine,
        one.probe,
        load,
        vocab_size=vocab_size,
        token_budget=bench.token_budget,
    )
    fields = times.fields(load.batch)
    least = _least_seconds(one, load, times.context)
    share = least / fields["seconds"]
    prompt_tokens = load.batch * load.prompt
    # Fewer would be padded, so that their rate would say little.
    is_full = prompt_tokens >= bench.token_budget
    return {
        **fields,
        "compile_s": compile_s,
        "roofline_s": least,
        "share_of_roofline": share,
        "prompt_tokens_per_s": prompt_tokens / times.prefill_s if is_full else None,
        "summary": f"{fields['tokens_per_s']:,.0f} tok/s, {share:.0%} of roofline"
        + summarise_host(fields),
    }


def summarise_host(fields: Mapping[str, Any]) -> str:
    """Say what the host and the launches cost, as far as that is known."""
    parts = [f", step {fields['seconds'] * 1e3:.2f} ms"]
    if fields.get("host_gap_s") is not None:
        parts.append(f"{fields['host_gap_s'] * 1e6:.0f} us of it idle")
    if "launches_per_step" in fields:
        parts.append(f"{fields['launches_per_step']:.0f} launches")
    return ", ".join(parts)


def _least_seconds(one: Ready, load: Load, context: int) -> float:
    shape = StepShape(load.batch, load.batch, context // load.batch)
    itemsize = one.model.params["embed"]["weight"].dtype.itemsize
    work = step_work(model_sizes(one.model.config), shape, itemsize=itemsize)
    return one.ceiling.seconds(work)


def _make_ready(bench: Bench, target: Target, ceiling: Ceiling) -> Ready:
    model = random_model(bench.config, dtype="bfloat16", device=target.device)
    engine, probe = make_engine(model, bench.size, target)
    return Ready(bench, model, engine, probe, ceiling, set())


def _compile(one: Ready, load: Load) -> float:
    """Compile what a load needs and nothing has compiled; return the seconds."""
    wanted = program_keys(one.bench.size, load.batch)
    missing = [key for key in wanted if key not in one.programs]
    start = time.perf_counter()
    one.probe.runner.warm_up(keys=missing)
    one.programs.update(missing)
    return time.perf_counter() - start


def program_keys(size: EngineSize, batch: int) -> Sequence[ProgramKey]:
    """Return the programs of requests that arrive and decode together."""
    width = size.buckets.table_widths[0]
    decode = StepBucket(True, batch, batch, width)
    mixed = StepBucket(False, size.token_budget, size.rows[-1], width)
    samplers = [rows for rows in size.rows if rows <= batch]
    return [
        DecodeKey(decode, SampleMode()),
        ForwardKey(mixed),
        *(SampleKey(rows, SampleMode()) for rows in samplers),
    ]
