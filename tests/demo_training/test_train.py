import json

import jax
import numpy as np
import pytest

pytest.importorskip("demo_training.train", reason="only in a checkout")

from demo_training import train
from jengine.text.tokenizer import load_tokenizer

SMALL = train.CONFIG | {
    "vocab_size": 270,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "head_dim": 8,
}


@pytest.mark.slow
def test_it_learns_and_writes_a_checkpoint(tmp_path, monkeypatch):
    stories = [
        {"number": number, "text": "The cat sat. The dog ran. " * 8}
        for number in range(41)
    ]
    file = tmp_path / "stories.jsonl"
    file.write_text("".join(json.dumps(story) + "\n" for story in stories))
    monkeypatch.setattr(train, "CONFIG", SMALL)
    monkeypatch.setattr(train, "BATCH", 2)
    monkeypatch.setattr(train, "ROW", 64)
    out, log = tmp_path / "model", tmp_path / "log.json"
    flags = ["--stories", str(file), "--out", str(out), "--log", str(log)]
    with jax.numpy_dtype_promotion("standard"):  # optax mixes int32 and float32
        train.main([*flags, "--epochs", "4"])
    read = json.loads(log.read_text())
    first, *_, last = read["curve"]
    assert last["held_out_loss"] < first["held_out_loss"] < np.log(SMALL["vocab_size"])
    assert (read["stories"], read["held_out_stories"]) == (38, 3)
    assert (out / "model.safetensors").is_file()
    tokenizer = load_tokenizer(out)
    assert tokenizer.decode(tokenizer.encode("The cat 猫")) == "The cat 猫"
