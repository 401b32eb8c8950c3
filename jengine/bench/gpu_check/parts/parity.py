"""A small random Llama decodes greedily on the GPU as on the CPU, in float32.

The weights are large enough that every token depends on the whole prompt. The CPU's
XLA path decides; where its two best ids are closer than rounding, the rest of that
request says nothing and is left out.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jengine.bench.gpu_check.engine_load import (
    EngineSize,
    generate,
    greedy,
    make_engine,
    random_prompts,
)
from jengine.bench.gpu_check.model_shapes import TINY
from jengine.bench.gpu_check.recorder import CheckError, Recorder
from jengine.bench.gpu_check.target import Target, find_target
from jengine.runner.load import LoadedModel
from jengine.runner.random_model import place_model, random_model

_CLOSE = 2e-3  # difference of two log-probabilities that rounding may turn
_SMALL: Mapping[str, Any] = {
    **TINY,
    "vocab_size": 4096,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 64,
}


class Expected(NamedTuple):
    """What one request generates on the CPU.

    Attributes:
      ids: the tokens.
      num_sure: leading ones whose choice was not close.
    """

    ids: list[int]
    num_sure: int


class Task(NamedTuple):
    """The requests, and the engine that they run on."""

    config: Mapping[str, Any]
    std: float
    size: EngineSize
    lengths: tuple[int, ...]
    max_tokens: int


FULL = Task(
    _SMALL,
    std=0.14,  # 3.2 / sqrt(hidden_size), where greedy output is anything but periodic
    size=EngineSize(rows=(6,), token_budget=64, max_model_len=320, num_blocks=90),
    lengths=(1, 7, 16, 33, 64, 65, 150, 200),
    max_tokens=48,
)
SMOKE = Task(
    TINY,
    std=0.4,
    # That of the engine's smoke test, which then finds its programs compiled.
    size=EngineSize(rows=(2,), token_budget=32, max_model_len=96, num_blocks=9),
    lengths=(1, 40),
    max_tokens=6,
)


def run(recorder: Recorder) -> None:
    """Compare the GPU's two attention paths with the CPU's."""
    task = SMOKE if recorder.smoke else FULL
    target = find_target()
    cpu = Target(jax.local_devices(backend="cpu")[0], target.gpu, True)
    model = random_model(task.config, dtype="float32", device=cpu.device, std=task.std)
    expected: list[Expected] = []

    def on_cpu() -> Mapping[str, Any]:
        expected.extend(expect(task, model, cpu))
        sure = sum(one.num_sure for one in expected)
        return {"summary": f"{sure} of {_total(expected)} tokens are no close choice"}

    # An earlier process that has done this died with its result.
    recorder.measure("CPU, float32, xla" + " again" * recorder.serial, on_cpu)
    if not expected:
        return
    for backend in ("pallas",) if recorder.smoke else ("pallas", "xla"):
        recorder.measure(
            f"GPU, float32, {backend}",
            lambda backend=backend: compare(task, model, target, backend, expected),
            least_s=3.0,
        )
    backend = "xla" if recorder.smoke else "pallas"
    recorder.measure(
        f"GPU, bfloat16, {backend}",
        lambda: in_bfloat16(task, model, target, backend, expected),
        least_s=3.0,
    )


def expect(task: Task, model: LoadedModel, cpu: Target) -> list[Expected]:
    """Generate on the CPU, and count how far each choice was clear."""
    engine, _ = make_engine(model, task.size, cpu, attention="xla", max_logprobs=2)
    found = []
    prompts = _prompts(task)
    for output in generate(engine, prompts, greedy(task.max_tokens, logprobs=2)):
        (completion,) = output.outputs
        values = [
            [one.logprob for one in step.values()] for step in completion.logprobs
        ]
        found.append(Expected(list(completion.token_ids), count_sure(values)))
    return found


def count_sure(logprobs: Sequence[Sequence[float]]) -> int:
    """Return how many leading tokens were no close choice.

    Args:
      logprobs: of at least the two best ids, for each token.
    """
    for number, values in enumerate(logprobs):
        best, second = sorted(values, reverse=True)[:2]
        if best - second < _CLOSE:
            return number
    return len(logprobs)


def compare(
    task: Task,
    model: LoadedModel,
    target: Target,
    backend: str,
    expected: Sequence[Expected],
) -> Mapping[str, Any]:
    """Generate on the target and compare what is sure.

    Raises:
      CheckError: a token differs.
    """
    return judge(
        _ids(task, place_model(model, target.device), target, backend), expected
    )


def judge(
    found: Sequence[Sequence[int]], expected: Sequence[Expected]
) -> Mapping[str, Any]:
    """Compare ids as far as they are sure.

    Raises:
      CheckError: a token differs.
    """
    sure = sum(one.num_sure for one in expected)
    wrong = [
        f"request {number} at token {at}"
        for number, (ids, one) in enumerate(zip(found, expected, strict=True))
        if (at := agreement(ids, one.ids)) < one.num_sure
    ]
    fields = {"tokens_compared": sure, "requests": len(expected)}
    if wrong:
        raise CheckError(f"ids differ: {', '.join(wrong)}", **fields)
    return {**fields, "summary": f"{sure} of {sure} tokens equal"}


def in_bfloat16(
    task: Task,
    model: LoadedModel,
    target: Target,
    backend: str,
    expected: Sequence[Expected],
) -> Mapping[str, Any]:
    """Count how far bfloat16 goes along; no number is right or wrong here."""
    halved = jax.tree.map(lambda a: np.asarray(a).astype("bfloat16"), model.params)
    small = place_model(model._replace(params=halved), target.device)
    found = _ids(task, small, target, backend)
    agreed = sum(
        agreement(ids, one.ids) for ids, one in zip(found, expected, strict=True)
    )
    total = _total(expected)
    return {
        "tokens_before_the_first_difference": agreed,
        "tokens": total,
        "summary": f"{agreed} of {total} tokens before the first difference",
    }


def agreement(found: Sequence[int], expected: Sequence[int]) -> int:
    """Return how many leading ids are equal."""
    pairs = zip(found, expected, strict=True)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), len(expected))


def _ids(
    task: Task, model: LoadedModel, target: Target, backend: str
) -> list[list[int]]:
    engine, _ = make_engine(model, task.size, target, attention=backend)
    outputs = generate(engine, _prompts(task), greedy(task.max_tokens))
    return [list(output.outputs[0].token_ids) for output in outputs]


def _prompts(task: Task) -> list[list[int]]:
    rng = np.random.default_rng(1)
    return random_prompts(rng, task.lengths, task.config["vocab_size"])


def _total(expected: Sequence[Expected]) -> int:
    return sum(len(one.ids) for one in expected)
