"""vLLM for the worker of `jengine bench compare`; its Python need not have jengine."""

import importlib
import importlib.metadata
from typing import Any


def load(options: dict[str, Any]) -> "Engine":
    """Load the model; see `launch.EngineOptions`."""
    return Engine(options)


class Engine:
    """Greedy, without regard to the end of sequence."""

    def __init__(self, options: dict[str, Any]) -> None:
        """Load the model."""
        self._vllm = importlib.import_module("vllm")
        given = {
            "dtype": options["dtype"],
            "skip_tokenizer_init": True,
            "max_num_seqs": options["max_num_seqs"],
            "max_model_len": options["max_model_len"],
        }
        self._llm = self._vllm.LLM(
            model=options["folder"], **(given | options["engine"])
        )

    def versions(self) -> dict[str, Any]:
        """Return the engine's version and those of what it stands on."""
        others = {"torch": importlib.metadata.version("torch")}
        return {"version": self._vllm.__version__, "versions": others}

    def generate(self, prompts: list[list[int]], output_tokens: int) -> list[list[int]]:
        """Return so many new ids for each prompt."""
        params = self._vllm.SamplingParams(
            temperature=0.0, max_tokens=output_tokens, ignore_eos=True, detokenize=False
        )
        asked = [{"prompt_token_ids": ids} for ids in prompts]
        outputs = self._llm.generate(asked, params, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]
