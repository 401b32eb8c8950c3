"""The class chosen without AutoTokenizer is the one that AutoTokenizer chooses."""

import json
import pathlib
import subprocess
import sys

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from jengine.demo_model import DEMO_MODEL
from jengine.testing import write_byte_tokenizer, write_sentencepiece_tokenizer
from jengine.text.tokenizer_class import tokenizer_class

TEXT = "Once upon a  time , it 's <eos> said: é 你好 \n 42"


def write_config(folder: pathlib.Path, **changes: object) -> pathlib.Path:
    path = folder / "config.json"
    path.write_text(json.dumps({"model_type": "llama"} | changes), encoding="utf-8")
    return folder


def change(folder: pathlib.Path, **changes: object) -> None:
    path = folder / "tokenizer_config.json"
    own = json.loads(path.read_text("utf-8")) | changes
    path.write_text(json.dumps(own), encoding="utf-8")


@pytest.fixture(params=["bytes", "sentencepiece", "demo"])
def folder(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> pathlib.Path:
    if request.param == "demo":
        return pathlib.Path(DEMO_MODEL)
    writers = {
        "bytes": write_byte_tokenizer,
        "sentencepiece": write_sentencepiece_tokenizer,
    }
    return write_config(writers[request.param](tmp_path))


def assert_alike(folder: pathlib.Path) -> None:
    mine, other = (
        one.from_pretrained(str(folder), revision=None, trust_remote_code=False)
        for one in (tokenizer_class(folder), AutoTokenizer)
    )
    assert type(mine) is type(other)
    assert mine.backend_tokenizer.to_str() == other.backend_tokenizer.to_str()
    assert mine.special_tokens_map == other.special_tokens_map
    assert mine.added_tokens_decoder == other.added_tokens_decoder
    assert mine.chat_template == other.chat_template
    assert mine.model_max_length == other.model_max_length
    assert mine.clean_up_tokenization_spaces == other.clean_up_tokenization_spaces
    for special in (False, True):
        ids = other.encode(TEXT, add_special_tokens=special)
        assert mine.encode(TEXT, add_special_tokens=special) == ids
        assert mine.decode(ids) == other.decode(ids)


def test_it_is_what_autotokenizer_loads(folder: pathlib.Path) -> None:
    assert tokenizer_class(folder) is PreTrainedTokenizerFast
    assert_alike(folder)


@pytest.mark.parametrize("name", ["PreTrainedTokenizerFast", "TokenizersBackend"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"clean_up_tokenization_spaces": True, "add_bos_token": True},
        {"padding_side": "left", "extra_special_tokens": {"image_token": "<image>"}},
    ],
)
def test_other_settings_are_read_alike(
    tmp_path: pathlib.Path, name: str, changes: dict[str, object]
) -> None:
    folder = write_config(write_byte_tokenizer(tmp_path))
    change(folder, tokenizer_class=name, **changes)
    assert tokenizer_class(folder) is PreTrainedTokenizerFast
    assert_alike(folder)


def test_a_template_in_a_file_of_its_own(tmp_path: pathlib.Path) -> None:
    folder = write_config(write_byte_tokenizer(tmp_path))
    (folder / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")
    assert_alike(folder)


@pytest.mark.parametrize(
    "model_type", ["qwen2", "qwen3", "mistral", None, 7, ["llama"]]
)
def test_models_with_a_class_of_their_own(
    tmp_path: pathlib.Path, model_type: object
) -> None:
    folder = write_config(write_byte_tokenizer(tmp_path), model_type=model_type)
    assert tokenizer_class(folder) is AutoTokenizer


@pytest.mark.parametrize(
    "changes",
    [
        {"tokenizer_class": "LlamaTokenizer"},
        {"tokenizer_class": "GPT2Tokenizer"},
        {"tokenizer_class": None},
        {"tokenizer_class": ["TokenizersBackend"]},
        {"auto_map": {"AutoTokenizer": ["mine.Mine", None]}},
    ],
)
def test_settings_that_leave_a_choice(
    tmp_path: pathlib.Path, changes: dict[str, object]
) -> None:
    folder = write_config(write_byte_tokenizer(tmp_path))
    change(folder, **changes)
    assert tokenizer_class(folder) is AutoTokenizer


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer_config.json", "tokenizer.json"]
)
@pytest.mark.parametrize("content", [None, b"[1", b"[]", b"\xff", b"[" * 10**5])
def test_files_that_are_missing_or_broken(
    tmp_path: pathlib.Path, name: str, content: bytes | None
) -> None:
    folder = write_config(write_byte_tokenizer(tmp_path))
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    # What a broken tokenizer.json lacks is said by whoever reads it.
    is_read_later = name == "tokenizer.json" and content is not None
    expected = PreTrainedTokenizerFast if is_read_later else AutoTokenizer
    assert tokenizer_class(folder) is expected


def test_a_hub_name() -> None:
    assert tokenizer_class("someone/a-model") is AutoTokenizer


def test_the_demo_model_starts_without_configurations_or_torch() -> None:
    code = (
        "import sys\n"
        "from jengine.demo_model import DEMO_MODEL\n"
        "from jengine.text.tokenizer import load_tokenizer\n"
        "load_tokenizer(DEMO_MODEL)\n"
        "heavy = {'torch', 'transformers.configuration_utils'} & {*sys.modules}\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
