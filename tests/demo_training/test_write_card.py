import math
import xml.etree.ElementTree as ET
from types import SimpleNamespace

import pytest

pytest.importorskip("demo_training.write_card", reason="only in a checkout")

from demo_training.write_card import (
    _TEMPLATE,
    curve_table,
    draw_curve,
    figures,
    samples,
)
from jengine import SamplingParams

CURVE = [
    {"epoch": n, "train_loss": 5.0 / n, "held_out_loss": 4.0 / n, "minutes": n}
    for n in range(1, 31)
]
LOG = {
    "stories": 1000,
    "tokens": 12345,
    "held_out_stories": 7,
    "held_out_tokens": 700.0,
    "held_out_bytes": 2800,
    "curve": CURVE,
}


class Echo:
    def get_default_sampling_params(self):
        return SamplingParams(temperature=0.5, top_p=0.75, max_tokens=3)

    def generate(self, prompts, params, **_):
        return [
            SimpleNamespace(prompt=p, outputs=[SimpleNamespace(text=f" {s.seed}")])
            for p, s in zip(prompts, params, strict=True)
        ]


def test_figures():
    found = figures(LOG)
    loss = 4.0 / 30
    assert found["perplexity"] == f"{math.exp(loss):.1f}"
    assert found["perplexity_per_byte"] == f"{math.exp(loss / 4):.3f}"
    assert (found["tokens"], found["epochs"], found["minutes"]) == (
        "12,345",
        "30",
        "30",
    )


def test_the_table_is_short_and_ends_with_the_last_epoch():
    rows = curve_table(CURVE).splitlines()[2:]
    assert len(rows) <= 12
    assert rows[-1] == "| 30 | 0.167 | 0.133 |"


def test_the_curve_is_drawn_from_its_points():
    root = ET.fromstring(draw_curve([(4.0, 3.0), (2.0, 1.0), (1.0, 2.0)]))
    lines = [e for e in root if e.tag.endswith("polyline")]
    heights = [
        [float(point.split(",")[1]) for point in e.attrib["points"].split()]
        for e in lines
    ]
    training, held_out = heights
    assert training == sorted(training)  # down is larger
    assert held_out[1] > held_out[2] > held_out[0]


def test_the_card_has_a_place_for_every_part():
    text = samples(Echo())
    assert text.startswith(
        "**0.** Once upon a time 0\n\n**1.** One day, a little fox 1"
    )
    card = _TEMPLATE.read_text("utf-8").format(
        **figures(LOG), curve=curve_table(CURVE), samples=text
    )
    assert text in card
    assert "1,000 stories, 12,345 tokens" in card
