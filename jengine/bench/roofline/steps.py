"""What decode steps of an engine take, by its public interface alone."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from jengine.errors import InvalidValueError
from jengine.sampling_params import SamplingParams

_WARM_UP = 3  # steps that do not count


def time_decode_steps(
    llm: Any,
    batch: int,
    *,
    context: int,
    steps: int = 20,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return the median seconds of a step in which `batch` requests decode.

    Args:
      llm: an `LLM`.
      batch: requests that decode together.
      context: tokens of each before the first step that counts, about.
      steps: steps that count.
      clock: seconds.

    Raises:
      InvalidValueError: the engine has no room for so many requests of this length.
    """
    engine = llm.llm_engine
    limits = llm.config
    length = context + _new_tokens(batch, context, steps, limits.max_num_batched_tokens)
    if batch > limits.max_num_seqs or length > limits.max_model_len:
        raise InvalidValueError(
            "batch and context",
            (batch, length),
            f"at most {limits.max_num_seqs} requests of {limits.max_model_len} tokens",
        )
    params = SamplingParams(
        temperature=0.0,
        ignore_eos=True,
        max_tokens=length - context,
        detokenize=False,
    )
    ids = np.random.default_rng(0).integers(0, limits.vocab_size, (batch, context))
    names = [f"roofline-{number}" for number in range(batch)]
    for name, prompt in zip(names, ids.tolist(), strict=True):
        engine.add_request(name, {"prompt_token_ids": prompt}, params)
    try:
        return _time_steps(engine, batch, steps, clock)
    finally:
        engine.abort_request(names)
        llm.reset_prefix_cache()


def _new_tokens(batch: int, context: int, steps: int, budget: int) -> int:
    """Return how many tokens the first request generates until all is measured."""
    arriving = -(-batch * context // max(1, budget - batch)) + 1
    return arriving + _WARM_UP + steps + 4


def _time_steps(
    engine: Any, batch: int, steps: int, clock: Callable[[], float]
) -> float:
    for _ in range(_WARM_UP):
        while _step_tokens(engine) != batch or engine.stats.num_running != batch:
            if not engine.has_unfinished_requests():
                raise InvalidValueError(
                    "batch", batch, "what fits into the KV cache at once"
                )
    seconds = []
    for _ in range(steps):
        start = clock()
        engine.step()
        seconds.append(clock() - start)
    return statistics.median(seconds)


def _step_tokens(engine: Any) -> int:
    """Run a step and return the tokens that it ran."""
    before = engine.stats.num_scheduled_tokens
    engine.step()
    return engine.stats.num_scheduled_tokens - before
