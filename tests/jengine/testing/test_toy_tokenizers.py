"""The small tokenizers behave like those they stand for."""

import pathlib
from typing import Any

import pytest

from jengine.testing.toy_tokenizers import (
    write_byte_tokenizer,
    write_sentencepiece_tokenizer,
)

TEXTS = ("", "hello world", "  two  spaces ", "é 😀\n\t你好\x00", "<bos>")


def load(path: pathlib.Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path)


class TestByteTokenizer:
    @pytest.mark.parametrize("text", TEXTS[:-1])
    def test_ids_are_bytes(self, tmp_path: pathlib.Path, text: str) -> None:
        tokenizer = load(write_byte_tokenizer(tmp_path))
        assert tokenizer.encode(text) == list(text.encode())
        assert tokenizer.decode(list(text.encode())) == text

    def test_special_tokens(self, tmp_path: pathlib.Path) -> None:
        tokenizer = load(write_byte_tokenizer(tmp_path))
        ids = (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id)
        assert ids == (256, 257, 258)
        assert len(tokenizer) == 259
        assert tokenizer.encode("<bos>") == [256]

    def test_chat_template(self, tmp_path: pathlib.Path) -> None:
        tokenizer = load(write_byte_tokenizer(tmp_path / "with"))
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": "hi"}], tokenize=False
        )
        assert text == "<bos>user: hi<eos>\n"
        without = write_byte_tokenizer(tmp_path / "without", chat_template=None)
        assert load(without).chat_template is None


class TestSentencepieceTokenizer:
    @pytest.mark.parametrize("text", TEXTS[:-1])
    def test_round_trip_with_bos(self, tmp_path: pathlib.Path, text: str) -> None:
        tokenizer = load(write_sentencepiece_tokenizer(tmp_path))
        ids = tokenizer.encode(text)
        assert ids[0] == 1
        assert tokenizer.decode(ids, skip_special_tokens=True) == text

    def test_spaces_belong_to_words(self, tmp_path: pathlib.Path) -> None:
        tokenizer = load(write_sentencepiece_tokenizer(tmp_path))
        ids = tokenizer.encode("the cat", add_special_tokens=False)
        assert tokenizer.convert_ids_to_tokens(ids) == ["▁the", "▁cat"]
        assert tokenizer.decode(ids[1:]) == "cat"  # the first space is stripped

    def test_byte_fallback(self, tmp_path: pathlib.Path) -> None:
        tokenizer = load(write_sentencepiece_tokenizer(tmp_path))
        ids = tokenizer.encode("hello 😀 world")
        tokens = tokenizer.convert_ids_to_tokens(ids)
        assert tokens[1] == "▁hello"
        assert tokens[-5:-1] == ["<0xF0>", "<0x9F>", "<0x98>", "<0x80>"]
        joined = "".join(tokenizer.decode([token]) for token in ids[1:])
        assert joined == "hello\ufffd\ufffd\ufffd\ufffdworld"  # why whole text counts

    def test_fits_the_small_models(self, tmp_path: pathlib.Path) -> None:
        tokenizer = load(write_sentencepiece_tokenizer(tmp_path))
        assert len(tokenizer) <= 320
        few = load(write_sentencepiece_tokenizer(tmp_path, words=["on", "cat"]))
        assert len(few) < 300
        assert few.encode("on")[1:] == few.convert_tokens_to_ids(["▁on"])
