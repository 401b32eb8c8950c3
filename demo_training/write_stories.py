"""Has SmolLM2-135M-Instruct write the stories that the demo model learns from.

    python -m demo_training.write_stories --model SmolLM2-135M-Instruct.Q4_1.gguf \
        --out stories.jsonl --stories 3000

Each story has its own prompt and its own seed, both from its number, and is written to
the file when it is finished: a run that was broken off goes on where it stopped.
"""

import argparse
import json
import time
from pathlib import Path

from demo_training.story_prompts import story_prompt
from jengine import LLM, SamplingParams
from jengine.repetition_detection import RepetitionDetectionParams

_CHUNK = 64  # run at once; most stories are as long as is allowed


def main() -> None:
    """Write the stories that are not in the file yet."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--stories", type=int, default=3000)
    asked = parser.parse_args()
    have = _numbers(asked.out)
    left = [number for number in range(asked.stories) if number not in have]
    llm = LLM(asked.model, max_model_len=256, max_num_seqs=_CHUNK)
    started, tokens = time.monotonic(), 0
    for first in range(0, len(left), _CHUNK):
        tokens += _write(llm, left[first : first + _CHUNK], asked.out)
        rate = tokens / (time.monotonic() - started)
        print(f"{first} to {first + _CHUNK}: {rate:.0f} tokens/s", flush=True)


def _numbers(path: Path) -> set[int]:
    if not path.exists():
        return set()
    return {json.loads(line)["number"] for line in path.read_text().splitlines()}


def _write(llm: LLM, numbers: list[int], path: Path) -> int:
    """Append these stories to the file; return how many tokens were generated."""
    prompts = [story_prompt(number) for number in numbers]
    outputs = llm.chat(
        [prompt.messages() for prompt in prompts],
        [_params(number) for number in numbers],
        use_tqdm=False,
        add_generation_prompt=False,
        continue_final_message=True,
    )
    tokens = 0
    with path.open("a", encoding="utf-8") as file:
        for number, prompt, output in zip(numbers, prompts, outputs, strict=True):
            done = output.outputs[0]
            tokens += len(done.token_ids)
            line = {
                "number": number,
                "text": prompt.opening + done.text,
                "finish_reason": done.finish_reason,
            }
            file.write(json.dumps(line) + "\n")
    return tokens


def _params(number: int) -> SamplingParams:
    # Without the penalty a model of this size goes round in circles.
    return SamplingParams(
        temperature=0.8,
        top_k=50,
        top_p=0.9,
        frequency_penalty=0.2,
        max_tokens=120,
        seed=number,
        repetition_detection=RepetitionDetectionParams(
            max_pattern_size=20, min_count=3
        ),
    )


if __name__ == "__main__":
    main()
