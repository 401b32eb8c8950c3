"""Writes the model card: how the model was made, its figures, its text.

    python -m demo_training.write_card --log demo_training/log.json

The card goes beside the weights, with a picture of the loss curve.
"""

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jengine import LLM, SamplingParams
from jengine.demo_model import DEMO_MODEL

SEEDS = range(10)
PROMPTS = ("Once upon a time", "One day, a little fox")
_TEMPLATE = Path(__file__).with_name("card.md")


def main() -> None:
    """Write README.md and loss.svg into the folder of the checkpoint."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--log", type=Path, required=True)
    log = json.loads(parser.parse_args().log.read_text("utf-8"))
    folder = Path(DEMO_MODEL)
    curve = [(p["train_loss"], p["held_out_loss"]) for p in log["curve"]]
    (folder / "loss.svg").write_text(draw_curve(curve), encoding="utf-8")
    filled = _TEMPLATE.read_text("utf-8").format(
        **figures(log), curve=curve_table(log["curve"]), samples=samples(LLM())
    )
    (folder / "README.md").write_text(filled, encoding="utf-8")


def figures(log: Mapping[str, Any]) -> dict[str, str]:
    """Return the numbers of the card by name, as text."""
    loss = min(point["held_out_loss"] for point in log["curve"])
    per_byte = loss * log["held_out_tokens"] / log["held_out_bytes"]
    return {
        "stories": f"{log['stories']:,}",
        "tokens": f"{log['tokens']:,}",
        "held_out_stories": f"{log['held_out_stories']:,}",
        "held_out_tokens": f"{log['held_out_tokens']:,.0f}",
        "epochs": str(len(log["curve"])),
        "minutes": f"{log['curve'][-1]['minutes']:.0f}",
        "loss": f"{loss:.3f}",
        "perplexity": f"{math.exp(loss):.1f}",
        "perplexity_per_byte": f"{math.exp(per_byte):.3f}",
        "bits_per_byte": f"{per_byte / math.log(2):.3f}",
    }


def curve_table(curve: Sequence[Mapping[str, float]]) -> str:
    """Return at most a dozen epochs as a table in Markdown, the last one included."""
    every = -(-len(curve) // 12)
    shown = [p for p in curve if p["epoch"] % every == 0 or p is curve[-1]]
    rows = ["| epoch | training | held out |", "|---|---|---|"]
    rows += [
        f"| {p['epoch']} | {p['train_loss']:.3f} | {p['held_out_loss']:.3f} |"
        for p in shown
    ]
    return "\n".join(rows)


def samples(llm: Any) -> str:
    """Return one story for each of `SEEDS` as Markdown, as the model wrote it."""
    prompts = [PROMPTS[seed % len(PROMPTS)] for seed in SEEDS]
    base = llm.get_default_sampling_params()
    params = [
        SamplingParams(
            temperature=base.temperature,
            top_p=base.top_p,
            max_tokens=base.max_tokens,
            seed=seed,
        )
        for seed in SEEDS
    ]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    return "\n\n".join(
        f"**{seed}.** {output.prompt}{output.outputs[0].text}"
        for seed, output in zip(SEEDS, outputs, strict=True)
    )


def draw_curve(curve: Sequence[tuple[float, float]]) -> str:
    """Return an SVG of the losses in training (grey) and held out (blue).

    Args:
      curve: the two losses of each epoch.
    """
    left, right, top, bottom = 40, 440, 40, 200
    most = max(max(point) for point in curve)
    step = (right - left) / max(1, len(curve) - 1)

    def line(losses: Sequence[float], colour: str) -> str:
        places = [
            (left + i * step, bottom - loss / most * (bottom - top))
            for i, loss in enumerate(losses)
        ]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        return f'<polyline fill="none" stroke="{colour}" points="{points}"/>'

    def label(x: float, y: float, text: str, colour: str = "#555") -> str:
        return f'<text x="{x}" y="{y}" font-size="12" fill="{colour}">{text}</text>'

    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" width="480" height="240" '
        'font-family="sans-serif" stroke-width="2">',
        '<rect width="480" height="240" fill="white"/>',
        f'<path d="M{left} {top}V{bottom}H{right}" fill="none" stroke="#999"/>',
        line([training for training, _ in curve], "#999"),
        line([held_out for _, held_out in curve], "#1f77b4"),
        '<g stroke="none">',
        label(4, top + 4, f"{most:.1f}"),
        label(4, bottom + 4, "0.0"),
        label(left, bottom + 16, "epoch 1"),
        label(right - 16, bottom + 16, str(len(curve))),
        label(right - 80, top, "held out", "#1f77b4"),
        label(right - 80, top + 16, "training"),
        label(left, top - 14, "loss, nats a token"),
        "</g>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
