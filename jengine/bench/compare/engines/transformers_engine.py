"""transformers' `generate` for the worker of `jengine bench compare`.

One static batch, padded on the left, as its documentation tells to do it. The Python
that runs this need not have jengine.
"""

from typing import Any

_PAD = 0  # any id will do: the mask hides it


def load(options: dict[str, Any]) -> "Engine":
    """Load the model; see `launch.EngineOptions`."""
    return Engine(options)


class Engine:
    """Greedy, without regard to the end of sequence."""

    def __init__(self, options: dict[str, Any]) -> None:
        """Load the model."""
        import torch
        import transformers

        self._torch, self._transformers = torch, transformers
        torch.set_num_threads(options["threads"])
        self._model: Any = transformers.AutoModelForCausalLM.from_pretrained(
            options["folder"],
            dtype=getattr(torch, options["dtype"]),
            **options["engine"],
        ).eval()

    def versions(self) -> dict[str, Any]:
        """Return the engine's version and those of what it stands on."""
        others = {"torch": self._torch.__version__}
        return {"version": self._transformers.__version__, "versions": others}

    def generate(self, prompts: list[list[int]], output_tokens: int) -> list[list[int]]:
        """Return so many new ids for each prompt."""
        torch, longest = self._torch, max(map(len, prompts))
        ids = [[_PAD] * (longest - len(one)) + one for one in prompts]
        mask = [[0] * (longest - len(one)) + [1] * len(one) for one in prompts]
        config = self._transformers.GenerationConfig(
            max_new_tokens=output_tokens,
            do_sample=False,
            pad_token_id=_PAD,
            eos_token_id=None,
        )
        # The model's own EOS would fill in for the one that is left out.
        self._model.generation_config.eos_token_id = None
        with torch.inference_mode():
            found = self._model.generate(
                torch.tensor(ids),
                attention_mask=torch.tensor(mask),
                generation_config=config,
            )
        return found[:, longest:].tolist()
