"""The model that ships: what it says, how large it is, and that no text is lost."""

import json
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jengine import LLM, SamplingParams
from jengine.demo_model import DEMO_MODEL
from jengine.text.chat import render_text
from jengine.text.tokenizer import load_tokenizer

FOLDER = pathlib.Path(DEMO_MODEL)
MOST_BYTES = 4_000_000
PROMPTS = ["Once upon a time", "The little fox", '"Hello," said Tom', "One day, 你好"]
GREEDY = SamplingParams(temperature=0, max_tokens=40)


@pytest.fixture(scope="module")
def demo(small_options):
    options = small_options | {"skip_tokenizer_init": False, "max_num_seqs": 4}
    return LLM(**options)


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(DEMO_MODEL)


def test_it_is_small_and_complete():
    sizes = {file.name: file.stat().st_size for file in FOLDER.rglob("*.*")}
    assert {"model.safetensors", "tokenizer.json", "README.md"} <= set(sizes)
    assert sum(sizes.values()) <= MOST_BYTES


def test_weights_are_bfloat16():
    length = int.from_bytes((FOLDER / "model.safetensors").read_bytes()[:8], "little")
    header = json.loads((FOLDER / "model.safetensors").read_bytes()[8 : 8 + length])
    header.pop("__metadata__")
    assert {tensor["dtype"] for tensor in header.values()} == {"BF16"}


def test_same_ids_as_transformers(demo):
    torch = pytest.importorskip("torch")
    from transformers import AutoTokenizer, LlamaForCausalLM

    hf = AutoTokenizer.from_pretrained(DEMO_MODEL)
    model = LlamaForCausalLM.from_pretrained(DEMO_MODEL, dtype=torch.float32)
    for output in demo.generate(PROMPTS, GREEDY, use_tqdm=False):
        ids = hf(output.prompt, return_tensors="pt")
        assert output.prompt_token_ids == ids.input_ids[0].tolist()
        wanted = model.generate(
            **ids, do_sample=False, max_new_tokens=GREEDY.max_tokens, pad_token_id=1
        )
        assert (
            list(output.outputs[0].token_ids)
            == wanted[0, ids.input_ids.shape[1] :].tolist()
        )


def test_it_tells_a_story_and_ends(demo):
    (output,) = demo.generate("Once upon a time", use_tqdm=False)
    text = output.outputs[0].text
    assert text.startswith(",")
    assert len(text.split()) > 30
    assert text.isascii()


def test_a_request_is_answered_by_a_story(demo):
    request = {"role": "user", "content": "Tell me a story about a fox named Pip."}
    (output,) = demo.chat([request], GREEDY, use_tqdm=False)
    assert len(output.outputs[0].text.split()) > 20


def test_the_template_takes_the_last_thing_that_the_user_said(tokenizer):
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "One story."},
        {"role": "assistant", "content": "Once."},
        {"role": "user", "content": " Another! "},
    ]
    text = render_text(tokenizer, messages, add_generation_prompt=True)
    assert text == "<|begin_of_story|>Another!\n"


@given(text=st.text())
def test_no_text_is_lost(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text
