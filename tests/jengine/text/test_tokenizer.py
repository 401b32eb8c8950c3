"""One face for every kind of tokenizer."""

import pathlib
import subprocess
import sys

import pytest

from jengine.errors import CheckpointError, ConfigError, PromptError
from jengine.testing import write_byte_tokenizer
from jengine.text.tokenizer import Tokenizer, load_tokenizer, wrap_tokenizer


class TestEncode:
    def test_special_tokens_only_if_asked(
        self, sentencepiece_tokenizer: Tokenizer
    ) -> None:
        tokenizer = sentencepiece_tokenizer
        assert tokenizer.encode("the cat") == tokenizer.hf.encode("the cat")
        assert tokenizer.encode("the cat")[1:] == tokenizer.encode("the cat", False)

    def test_bad_01_empty_text(
        self, sentencepiece_tokenizer: Tokenizer, byte_tokenizer: Tokenizer
    ) -> None:
        assert sentencepiece_tokenizer.encode("") == [1]
        assert byte_tokenizer.encode("") == []

    def test_lone_surrogate(self, byte_tokenizer: Tokenizer) -> None:
        with pytest.raises(PromptError, match="lone surrogate at character 2"):
            byte_tokenizer.encode("ab\ud800")

    def test_text_longer_than_the_model_takes_is_not_cut(
        self, byte_tokenizer: Tokenizer
    ) -> None:
        assert len(byte_tokenizer.encode("x" * 5000)) == 5000


class TestDecode:
    def test_equals_transformers(self, byte_tokenizer: Tokenizer) -> None:
        ids = [256, *"hé".encode(), 257]
        assert byte_tokenizer.decode(ids) == "hé"
        assert byte_tokenizer.decode(ids, False) == "<bos>hé<eos>"

    def test_bad_03_unknown_ids(self, byte_tokenizer: Tokenizer) -> None:
        assert byte_tokenizer.max_token_id == 258
        assert byte_tokenizer.decode([104, 305, 2**40, -5, 105]) == "hi"

    def test_convert(self, byte_tokenizer: Tokenizer) -> None:
        assert byte_tokenizer.convert(104) == "h"
        assert byte_tokenizer.convert(257) == "<eos>"
        assert byte_tokenizer.convert(259) == ""

    @pytest.mark.parametrize("text", ["é", "你好", "a😀b", "한🦙"])
    def test_parts_of_characters(self, byte_tokenizer: Tokenizer, text: str) -> None:
        ids = [*text.encode()]
        pieces = [byte_tokenizer.convert(t, ids[:i]) for i, t in enumerate(ids)]
        assert "".join(pieces) == text
        # The last byte of a character has it, whatever else could have come.
        assert [len(p) for p in pieces].count(1) == len(text)

    def test_parts_that_make_no_character(self, byte_tokenizer: Tokenizer) -> None:
        smile = [*"😀".encode()]
        assert byte_tokenizer.convert(smile[0]) == ""
        assert byte_tokenizer.convert(smile[3], smile[1:3]) == ""
        assert byte_tokenizer.convert(smile[0], smile[:2]) == ""
        assert byte_tokenizer.convert(ord("a"), smile[:2]) == "a"

    def test_parts_after_parts(self, sentencepiece_tokenizer: Tokenizer) -> None:
        # A run of byte tokens of which one is wrong is decoded to nothing good.
        ids = [3 + byte for byte in "é😀".encode()]
        convert = sentencepiece_tokenizer.convert
        pieces = [convert(t, ids[max(0, i - 4) : i]) for i, t in enumerate(ids)]
        assert pieces == ["", "é", "", "", "", "😀"]


class TestKinds:
    def test_special_tokens(self, sentencepiece_tokenizer: Tokenizer) -> None:
        # The byte tokens are not special: decoding would drop them.
        assert sentencepiece_tokenizer.special_token_ids == {0, 1, 2}
        assert sentencepiece_tokenizer.eos_token_id == 2

    def test_clean_up_goes_through_transformers(
        self, byte_tokenizer: Tokenizer
    ) -> None:
        hf = type(byte_tokenizer.hf)(
            tokenizer_object=byte_tokenizer.hf.backend_tokenizer,
            clean_up_tokenization_spaces=True,
            clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output=True,
        )
        tidy = wrap_tokenizer(hf)
        assert tidy.backend is None
        assert tidy.decode(list(b"so .")) == hf.decode(list(b"so ."))
        assert byte_tokenizer.backend is not None

    def test_clean_up_that_transformers_ignores_changes_nothing(
        self, byte_tokenizer: Tokenizer
    ) -> None:
        hf = type(byte_tokenizer.hf)(
            tokenizer_object=byte_tokenizer.hf.backend_tokenizer,
            clean_up_tokenization_spaces=True,  # as the files of Llama 3 have it
        )
        tidy = wrap_tokenizer(hf)
        ids = list(b"it 's so . Is n't it ?")
        assert tidy.decode(ids) == hf.decode(ids)
        does_nothing = hf.decode(ids) == "it 's so . Is n't it ?"
        assert (tidy.backend is not None) == does_nothing  # true since 5.24 at least

    def test_a_tokenizer_written_in_python(self) -> None:
        from transformers import ByT5Tokenizer

        hf = ByT5Tokenizer()
        slow = wrap_tokenizer(hf)
        assert slow.backend is None
        ids = slow.encode("hé")
        assert slow.decode([*ids, 10**6]) == "hé"
        assert slow.decode(ids, False) == hf.decode(ids)
        plain = slow.decode(ids, False, spaces_between_special_tokens=False)
        assert plain == hf.decode(ids, spaces_between_special_tokens=False)


class TestLoad:
    def test_unknown_mode(self, tmp_path: pathlib.Path) -> None:
        with pytest.raises(ConfigError, match="tokenizer_mode is 'fast'"):
            load_tokenizer(tmp_path, mode="fast")

    @pytest.mark.parametrize("mode", ["auto", "hf", "slow"])
    def test_modes(self, tmp_path: pathlib.Path, mode: str) -> None:
        directory = write_byte_tokenizer(tmp_path)
        assert load_tokenizer(str(directory), mode=mode).encode("a") == [97]

    def test_no_tokenizer_there(self, tmp_path: pathlib.Path) -> None:
        with pytest.raises(CheckpointError, match="no tokenizer could be") as caught:
            load_tokenizer(tmp_path)
        message = str(caught.value)
        assert f"from {str(tmp_path)!r}, which holds no tokenizer.json: " in message
        assert "\n" not in message
        with pytest.raises(CheckpointError, match="which is no folder here: "):
            load_tokenizer(tmp_path / "gone")

    def test_broken_file(self, tmp_path: pathlib.Path) -> None:
        file = write_byte_tokenizer(tmp_path) / "tokenizer.json"
        file.write_text(file.read_text(encoding="utf-8")[:500], encoding="utf-8")
        with pytest.raises(CheckpointError, match="no tokenizer could be loaded from"):
            load_tokenizer(tmp_path)


def test_importing_the_package_loads_no_library() -> None:
    code = (
        "import sys, jengine.text.chat, jengine.text.detokenizer, jengine.text.stop\n"
        "heavy = {'transformers', 'tokenizers', 'numpy', 'jax', 'torch', 'gguf'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
