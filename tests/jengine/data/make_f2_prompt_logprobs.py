"""Writes f2_prompt_logprobs.json: what transformers thinks of the tokens of prompts.

    PYTHONPATH=. python tests/jengine/data/make_f2_prompt_logprobs.py

The prompts are those of f2_greedy.json with 2, 17, 40 and 80 tokens; the model is the
same small random Llama, in float32.
"""

import json
import pathlib
import tempfile
from typing import Any

from jengine.testing import write_random_checkpoint

FOLDER = pathlib.Path(__file__).parent
PATH = FOLDER / "f2_prompt_logprobs.json"
LENGTHS = (2, 17, 40, 80)
NUM_BEST = 3


def record(directory: str) -> list[dict[str, Any]]:
    """One forward pass for each prompt: what it says of each token but the first."""
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32
    )
    greedy = json.loads((FOLDER / "f2_greedy.json").read_text())
    prompts = [entry["prompt"] for entry in greedy[:80]]
    entries = []
    for prompt in (one for one in prompts if len(one) in LENGTHS):
        with torch.no_grad():
            logits = model(torch.tensor([prompt])).logits[0, :-1].double()
        values = torch.log_softmax(logits, dim=-1)
        own = values.gather(1, torch.tensor(prompt[1:])[:, None])
        best = values.topk(NUM_BEST)
        entries.append(
            {
                "prompt": prompt,
                "logprobs": own[:, 0].tolist(),
                "ranks": (1 + (values > own).sum(1)).tolist(),
                "best_ids": best.indices.tolist(),
                "best_logprobs": best.values.tolist(),
            }
        )
    return entries


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        write_random_checkpoint(folder)
        PATH.write_text(json.dumps(record(folder), indent=None) + "\n")
