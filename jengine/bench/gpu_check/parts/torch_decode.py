"""transformers on the same shapes: torch, sdpa, a growing and a static cache.

A bare greedy loop around the model, without what `generate` adds. It needs torch with
CUDA, which jengine itself never does; without it the part says so.
"""

import importlib.util
import inspect
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jengine.bench.gpu_check.model_shapes import LLAMA_1B, LLAMA_8B, TINY
from jengine.bench.gpu_check.recorder import Recorder
from jengine.bench.gpu_check.timing import time_chain


class Task(NamedTuple):
    """A model and its loads.

    Attributes:
      name: of the model's shape.
      config: its `config.json`.
      loads: (requests, tokens of each prompt).
    """

    name: str
    config: Mapping[str, Any]
    loads: tuple[tuple[int, int], ...]


_LOADS = ((1, 1024), (64, 1024), (8, 1024), (256, 512))
TASKS = (Task("Llama-3.2-1B", LLAMA_1B, _LOADS), Task("Llama-3.1-8B", LLAMA_8B, _LOADS))
SMOKE = (Task("tiny", TINY, ((2, 12),)),)
CACHES = ("growing", "static")
_ROOM = 512  # tokens after the prompt that a static cache has


def run(recorder: Recorder) -> None:
    """Measure each load with each cache, or say what is missing."""
    missing = what_is_missing(smoke=recorder.smoke)
    tasks = SMOKE if recorder.smoke else TASKS
    for task in tasks:
        made: list[Any] = []
        for batch, prompt in task.loads:
            for cache in CACHES:
                name = f"{task.name}, batch {batch}, {cache} cache"
                if missing is not None:
                    recorder.skip(name, missing)
                    continue
                recorder.measure(
                    name,
                    lambda task=task, made=made, load=(batch, prompt), cache=cache: (
                        measure(task, made, load, cache, smoke=recorder.smoke)
                    ),
                    least_s=2.0 if recorder.smoke else 8.0,
                )


def what_is_missing(*, smoke: bool) -> str | None:
    """Say why torch cannot be measured; None if it can."""
    for name in ("torch", "transformers"):
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed"
    import torch

    if not smoke and not torch.cuda.is_available():
        return f"torch {torch.__version__} sees no GPU"
    return None


def is_alive() -> bool:
    """Whether the device still adds; jax would take the memory that torch holds."""
    import torch

    try:
        return int((torch.ones(1, device="cuda") + 1).item()) == 2
    except RuntimeError:
        return not torch.cuda.is_available()


def measure(
    task: Task, made: list[Any], load: tuple[int, int], cache: str, *, smoke: bool
) -> Mapping[str, Any]:
    """Time decode steps of one load; the first of a model makes the model."""
    import torch

    if not made:
        made.append(_make_model(task.config, "cpu" if smoke else "cuda"))
    model = made[0]
    batch = load[0]
    with torch.inference_mode():
        start = time.perf_counter()
        advance, first = _start(model, load, cache)
        _wait(model, first)
        prefill_s = time.perf_counter() - start
        timing = time_chain(
            lambda token: _wait(model, advance(token)),
            first,
            samples=3 if smoke else 24,
            advances=1,  # each step by itself, as its token is wanted
        )
    return {
        **timing.fields(),
        "tokens_per_s": batch / timing.seconds,
        "first_prefill_s": prefill_s,
        "torch": torch.__version__,
        "summary": f"{batch / timing.seconds:,.0f} tok/s, "
        f"step {timing.seconds * 1e3:.2f} ms",
    }


def _make_model(config: Mapping[str, Any], device: str) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    fields = {key: value for key, value in config.items() if key != "model_type"}
    hf_config = AutoConfig.for_model(config["model_type"], **fields)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(
            hf_config,
            dtype=torch.float32 if device == "cpu" else torch.bfloat16,
            attn_implementation="sdpa",
        ).eval()


def _start(
    model: Any, load: tuple[int, int], cache: str
) -> tuple[Callable[[Any], Any], Any]:
    """Run the prompts; return a function from token to next token, and the first."""
    import torch
    from transformers import DynamicCache, StaticCache

    kept: Any = (
        StaticCache(config=model.config, max_cache_len=load[1] + _ROOM)
        if cache == "static"
        else DynamicCache(config=model.config)
    )

    # transformers renames it: 5.40 will take the new name only.
    known = inspect.signature(model.forward).parameters
    keyword = {"cache" if "cache" in known else "past_key_values": kept}

    def advance(ids: Any) -> Any:
        out = model(ids, **keyword, use_cache=True, logits_to_keep=1)
        return out.logits[:, -1:].argmax(-1)

    ids = torch.randint(3, model.config.vocab_size, load, device=model.device)
    return advance, advance(ids)


def _wait(model: Any, token: Any) -> Any:
    import torch

    if model.device.type == "cuda":
        torch.cuda.synchronize()
    return token
