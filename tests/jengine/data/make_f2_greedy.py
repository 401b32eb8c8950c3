"""Writes f2_greedy.json: what transformers generates from the small test checkpoint.

    python tests/jengine/data/make_f2_greedy.py

The recorded ids are the oracle of the tests that compare the engine with
transformers under many schedules; `test_f2_greedy.py` checks the record itself
against transformers wherever torch is installed.
"""

import json
import pathlib
import tempfile
from typing import Any

import numpy as np

from jengine.testing import write_random_checkpoint

NUM_NEW = 64
PATH = pathlib.Path(__file__).with_name("f2_greedy.json")


def prompts() -> list[list[int]]:
    """Prompts of every length from 1 to 80, and some that share their starts."""
    rng = np.random.default_rng(0)
    plain = [rng.integers(3, 320, size=n).tolist() for n in range(1, 81)]
    shared: list[list[int]] = []
    for stem in rng.integers(3, 320, size=(3, 100)).tolist():
        for common in (0, 1, 7, 16, 33, 80):
            tail = rng.integers(3, 320, size=11).tolist()
            shared.append(stem[:common] + tail)
    # Equal from the second block of 16 on, different inside the first.
    twin = list(shared[-1])
    twin[5] = 3 + (twin[5] - 2) % 317
    return [*plain, *shared, twin]


def num_sure(gaps: list[float]) -> int:
    """Count the leading choices that rounding could not have turned."""
    return next((i for i, gap in enumerate(gaps) if gap < 1e-3), len(gaps))


def record(directory: str) -> list[dict[str, Any]]:
    """Generate greedily with transformers, with the margin of every choice."""
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32
    )
    entries = []
    for prompt in prompts():
        ids, gaps = list(prompt), []
        out = model.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            max_new_tokens=NUM_NEW,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_logits=True,
        )
        for logits in out.logits:
            best = torch.topk(logits[0], 2).values
            gaps.append(float(best[0] - best[1]))
        new = out.sequences[0, len(prompt) :].tolist()
        first = torch.log_softmax(out.logits[0][0].double(), dim=-1)[new[0]]
        entries.append(
            {
                "prompt": prompt,
                "ids": new,
                "num_sure": num_sure(gaps),
                "first_logprob": float(first),
            }
        )
    return entries


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        write_random_checkpoint(folder)
        PATH.write_text(json.dumps(record(folder), indent=None) + "\n")
