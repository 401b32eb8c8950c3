"""The demo checkpoint says something readable, and the same each time."""

import pathlib

import pytest

from jengine.testing.demo import DEMO_DESCRIPTION, write_demo_checkpoint
from jengine.text.chat import render_text
from jengine.text.tokenizer import load_tokenizer

FIRST = " In the morning the lighthouse keeper counted the boats in the bay."


def test_small_and_the_same_each_time(tmp_path: pathlib.Path) -> None:
    first = write_demo_checkpoint(tmp_path / "a")
    second = write_demo_checkpoint(tmp_path / "b")
    files = sorted(file.name for file in first.iterdir())
    assert "generation_config.json" in files
    assert "tokenizer.json" in files
    for name in files:
        assert (first / name).read_bytes() == (second / name).read_bytes()
    assert sum(file.stat().st_size for file in first.iterdir()) < 2_000_000


def test_it_says_that_it_is_not_trained(tmp_path: pathlib.Path) -> None:
    readme = (write_demo_checkpoint(tmp_path) / "README.md").read_text()
    assert "not a trained model" in DEMO_DESCRIPTION
    assert DEMO_DESCRIPTION in readme


@pytest.mark.parametrize("text", ["Once upon a time", "你好 😀\n", FIRST, "", " a  b"])
def test_any_text_is_encoded(tmp_path: pathlib.Path, text: str) -> None:
    tokenizer = load_tokenizer(write_demo_checkpoint(tmp_path))
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_chat_template(tmp_path: pathlib.Path) -> None:
    tokenizer = load_tokenizer(write_demo_checkpoint(tmp_path))
    text = render_text(
        tokenizer, [{"role": "user", "content": "hi"}], add_generation_prompt=True
    )
    assert text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("prompt", ["Once upon a time", "你好", " the waves"])
def test_greedy_text(tmp_path: pathlib.Path, prompt: str) -> None:
    torch = pytest.importorskip("torch")
    from transformers import LlamaForCausalLM

    root = write_demo_checkpoint(tmp_path)
    tokenizer = load_tokenizer(root)
    model = LlamaForCausalLM.from_pretrained(root, dtype=torch.float32)
    ids = tokenizer.encode(prompt)
    out = model.generate(
        torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.int64),
        do_sample=False,
        max_new_tokens=60,
        pad_token_id=0,
    )[0, len(ids) :].tolist()
    assert out[-1] == tokenizer.eos_token_id
    text = tokenizer.decode(out)
    if prompt == " the waves":  # continues inside a sentence of the chain
        assert text == " and went home."
    else:
        assert text.startswith(FIRST)
        assert text.count(".") == 8
