"""jengine: an LLM inference engine with vLLM's interface, built the JAX way.

    from jengine import LLM, SamplingParams

    llm = LLM("path/to/checkpoint")
    for output in llm.generate(["Once upon a time"], SamplingParams(max_tokens=32)):
        print(output.outputs[0].text)

The public names are loaded when they are first used, so `import jengine` loads neither
jax nor numpy. Below this package lie `models` (Flax modules) and `kernels_pallas`
(kernels); imports go in that direction only. Inside it, `core` is the host side
(scheduler and block allocator, standard library only) and `runner` the device side.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jengine.async_llm import AsyncLLM
    from jengine.config import EngineConfig
    from jengine.engine import LLMEngine
    from jengine.llm import LLM
    from jengine.outputs import (
        CompletionOutput,
        FlatLogprobs,
        Logprob,
        RequestOutput,
    )
    from jengine.prompts import TextPrompt, TokensPrompt
    from jengine.repetition_detection import RepetitionDetectionParams
    from jengine.sampling_params import RequestOutputKind, SamplingParams
    from jengine.structured_outputs import (
        GuidedDecodingParams,
        StructuredOutputsParams,
    )

__version__ = "0.1.0"

__all__ = [
    "LLM",
    "AsyncLLM",
    "CompletionOutput",
    "EngineConfig",
    "FlatLogprobs",
    "GuidedDecodingParams",
    "LLMEngine",
    "Logprob",
    "RepetitionDetectionParams",
    "RequestOutput",
    "RequestOutputKind",
    "SamplingParams",
    "StructuredOutputsParams",
    "TextPrompt",
    "TokensPrompt",
    "__version__",
]

_HOMES = {
    "LLM": "jengine.llm",
    "AsyncLLM": "jengine.async_llm",
    "CompletionOutput": "jengine.outputs",
    "EngineConfig": "jengine.config",
    "FlatLogprobs": "jengine.outputs",
    "GuidedDecodingParams": "jengine.structured_outputs",
    "LLMEngine": "jengine.engine",
    "Logprob": "jengine.outputs",
    "RepetitionDetectionParams": "jengine.repetition_detection",
    "RequestOutput": "jengine.outputs",
    "RequestOutputKind": "jengine.sampling_params",
    "SamplingParams": "jengine.sampling_params",
    "StructuredOutputsParams": "jengine.structured_outputs",
    "TextPrompt": "jengine.prompts",
    "TokensPrompt": "jengine.prompts",
}


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'jengine' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})
