"""Text grows as the tokenizer decodes the whole, and never shows half a character."""

from collections.abc import Callable

import pytest

from jengine.text.detokenizer import IncrementalDetokenizer
from jengine.text.tokenizer import Tokenizer, wrap_tokenizer

DeltasOf = Callable[..., list[str]]
FAMILY = "👩‍👩‍👧‍👦"
UNICODE_TEXT = f"😀 and 🦙🦙, 你好 한 {FAMILY} é end"
NO_TOKEN = 319  # no id of any tokenizer here, but one of a padded model vocabulary


def ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


class TestCharacterOverSeveralTokens:
    @pytest.mark.parametrize("num_each", [1, 2, 3, 1000])
    def test_dtk_01_byte_tokens(
        self, byte_tokenizer: Tokenizer, num_each: int, deltas_of: DeltasOf
    ) -> None:
        ids = ids_of(byte_tokenizer, UNICODE_TEXT)
        deltas = deltas_of(byte_tokenizer, ids, num_each=num_each)
        assert "".join(deltas) == UNICODE_TEXT
        assert not any("\ufffd" in delta for delta in deltas)

    @pytest.mark.parametrize("num_each", [1, 2])
    def test_dtk_01_byte_fallback(
        self, sentencepiece_tokenizer: Tokenizer, num_each: int, deltas_of: DeltasOf
    ) -> None:
        ids = ids_of(sentencepiece_tokenizer, UNICODE_TEXT)
        deltas = deltas_of(sentencepiece_tokenizer, ids, num_each=num_each)
        assert "".join(deltas) == UNICODE_TEXT
        assert not any("\ufffd" in delta for delta in deltas)

    @pytest.mark.checkpoint
    def test_dtk_01_real_tokenizer(
        self, smollm2_tokenizer: Tokenizer, deltas_of: DeltasOf
    ) -> None:
        script = [504, 476, 12390, 7199, 18, 40303, 218, 216, 18645, 250, 48392, 138]
        deltas = deltas_of(smollm2_tokenizer, script)
        assert deltas[:5] == ["The", ' "', "desc", "ribed", '"']
        assert deltas[5:8] == [" ", "😀", " "]
        assert "".join(deltas) == 'The "described" 😀 你好'

    def test_a_character_appears_with_its_last_byte(
        self, byte_tokenizer: Tokenizer, deltas_of: DeltasOf
    ) -> None:
        deltas = deltas_of(byte_tokenizer, list("a😀b".encode()))
        assert deltas == ["a", "", "", "", "😀", "b", ""]

    def test_flush_gives_out_an_unfinished_character(
        self, byte_tokenizer: Tokenizer, deltas_of: DeltasOf
    ) -> None:
        ids = list("a😀".encode())[:-1]
        assert deltas_of(byte_tokenizer, ids)[-1] == "\ufffd"
        assert "".join(deltas_of(byte_tokenizer, ids)) == byte_tokenizer.decode(ids)


class TestPromptEndsInsideCharacter:
    def test_dtk_02_output_completes_it(
        self, byte_tokenizer: Tokenizer, deltas_of: DeltasOf
    ) -> None:
        prompt = [*b"secret words ", 0xF0, 0x9F]
        text = "".join(deltas_of(byte_tokenizer, [0x98, 0x80, *b" The"], prompt=prompt))
        assert text == "😀 The"

    def test_dtk_02_output_leaves_it_broken(
        self, byte_tokenizer: Tokenizer, deltas_of: DeltasOf
    ) -> None:
        prompt = [*b"secret words ", 0xF0, 0x9F]
        assert "".join(deltas_of(byte_tokenizer, list(b"The"), prompt=prompt)) == "The"

    def test_dtk_02_output_breaks_it_in_another_way(
        self, byte_tokenizer: Tokenizer, deltas_of: DeltasOf
    ) -> None:
        prompt = [*b"secret words ", 0xF0]
        text = "".join(deltas_of(byte_tokenizer, [0x9F, *b"The"], prompt=prompt))
        assert text == "The"

    @pytest.mark.parametrize("num_broken", [1, 2, 3])
    def test_dtk_02_byte_fallback(
        self, sentencepiece_tokenizer: Tokenizer, num_broken: int, deltas_of: DeltasOf
    ) -> None:
        emoji = ids_of(sentencepiece_tokenizer, "😀")[1:]  # without the space
        assert len(emoji) == 4
        prompt = ids_of(sentencepiece_tokenizer, "secret cat") + emoji[:num_broken]
        world = ids_of(sentencepiece_tokenizer, "world")
        completed = [*emoji[num_broken:], *world]
        text = "".join(deltas_of(sentencepiece_tokenizer, completed, prompt=prompt))
        assert text == "😀 world"
        text = "".join(deltas_of(sentencepiece_tokenizer, world, prompt=prompt))
        assert text == " world"

    @pytest.mark.checkpoint
    def test_dtk_02_real_tokenizer(
        self, smollm2_tokenizer: Tokenizer, deltas_of: DeltasOf
    ) -> None:
        prompt = [*ids_of(smollm2_tokenizer, "secret words "), 10813, 242]
        completed = "".join(deltas_of(smollm2_tokenizer, [218, 504], prompt=prompt))
        assert completed == "😀The"
        assert "".join(deltas_of(smollm2_tokenizer, [504], prompt=prompt)) == "The"

    def test_a_replacement_character_of_the_output_stays(
        self, byte_tokenizer: Tokenizer, deltas_of: DeltasOf
    ) -> None:
        deltas = deltas_of(byte_tokenizer, list("\ufffdx".encode()), prompt=b"ok")
        assert "".join(deltas) == "\ufffdx"


class TestSentencepieceSpaces:
    def test_dtk_03_spaces_and_bytes(
        self, sentencepiece_tokenizer: Tokenizer, deltas_of: DeltasOf
    ) -> None:
        prompt = sentencepiece_tokenizer.encode("the cat")
        output = ids_of(sentencepiece_tokenizer, "sat on 😀 world")
        deltas = deltas_of(sentencepiece_tokenizer, output, prompt=prompt)
        assert "".join(deltas) == " sat on 😀 world"
        assert deltas[:2] == [" sat", " on"]

    @pytest.mark.parametrize("prompt_text", ["", "the cat"])
    @pytest.mark.parametrize("output_tokens", [["sat", "▁on"], ["▁sat", "▁on"]])
    @pytest.mark.parametrize("skip", [True, False])
    def test_dtk_03_first_word(
        self,
        sentencepiece_tokenizer: Tokenizer,
        prompt_text: str,
        output_tokens: list[str],
        skip: bool,
        deltas_of: DeltasOf,
    ) -> None:
        tokenizer = sentencepiece_tokenizer
        prompt = tokenizer.encode(prompt_text)  # at least BOS
        output = tokenizer.hf.convert_tokens_to_ids(output_tokens)
        shown = tokenizer.decode(prompt, skip)
        expected = tokenizer.decode(prompt + output, skip)[len(shown) :]
        deltas = deltas_of(tokenizer, output, prompt=prompt, skip=skip)
        assert "".join(deltas) == expected

    def test_dtk_03_invalid_bytes_then_text(
        self, sentencepiece_tokenizer: Tokenizer, deltas_of: DeltasOf
    ) -> None:
        tokenizer = sentencepiece_tokenizer
        prompt = tokenizer.encode("the cat")
        names = ["▁sat", "<0xF0>", "<0x9F>", "▁world"]
        output = tokenizer.hf.convert_tokens_to_ids(names)
        assert tokenizer.hf.decode(output) == "sat\ufffd\ufffd world"
        deltas = deltas_of(tokenizer, output, prompt=prompt)
        assert deltas == [" sat", "", "", "\ufffd\ufffd world", ""]

    def test_skipped_special_token_does_not_eat_a_space(
        self, sentencepiece_tokenizer: Tokenizer, deltas_of: DeltasOf
    ) -> None:
        tokenizer = sentencepiece_tokenizer
        output = [*ids_of(tokenizer, "the"), 2, *ids_of(tokenizer, "cat")]
        assert deltas_of(tokenizer, output) == ["the", "", " cat", ""]

    def test_bytes_after_a_character_that_is_out_do_not_take_it_back(
        self, sentencepiece_tokenizer: Tokenizer, deltas_of: DeltasOf
    ) -> None:
        tokenizer = sentencepiece_tokenizer
        bad = tokenizer.hf.convert_tokens_to_ids(["<0xF0>", "<0x9F>"])
        output = [*ids_of(tokenizer, "😀"), *bad, *ids_of(tokenizer, "world")]
        assert "".join(deltas_of(tokenizer, output)) == "😀\ufffd\ufffd world"


@pytest.fixture(scope="module")
def tokenizer(byte_tokenizer: Tokenizer) -> Tokenizer:
    """A byte tokenizer with an added token of each kind."""
    hf = type(byte_tokenizer.hf)(
        tokenizer_object=byte_tokenizer.hf.backend_tokenizer,
        eos_token="<eos>",
        bos_token="<bos>",
    )
    hf.add_tokens(["<plain>"])
    hf.add_tokens(["<hidden>"], special_tokens=True)
    return wrap_tokenizer(hf)


class TestSpecialTokens:
    @pytest.mark.parametrize("skip", [True, False])
    @pytest.mark.parametrize("num_each", [1, 2])
    def test_dtk_04_equals_the_whole(
        self, tokenizer: Tokenizer, skip: bool, num_each: int, deltas_of: DeltasOf
    ) -> None:
        text = "<bos>assistant\nHi<eos><plain><hidden><hidden><plain><plain> x <bos>"
        ids = ids_of(tokenizer, text)
        assert tokenizer.max_token_id in ids
        expected = tokenizer.hf.decode(ids, skip_special_tokens=skip)
        deltas = deltas_of(tokenizer, ids, num_each=num_each, skip=skip)
        assert "".join(deltas) == expected
        assert ("<hidden>" in expected) is not skip
        assert "<plain>" in expected

    def test_dtk_04_spaces_between_special_tokens_changes_nothing_here(
        self, tokenizer: Tokenizer
    ) -> None:
        ids = ids_of(tokenizer, "a<bos><eos>b")
        detokenizer = IncrementalDetokenizer(
            tokenizer,
            [],
            skip_special_tokens=False,
            spaces_between_special_tokens=False,
        )
        assert detokenizer.append(ids) == "a<bos><eos>b"

    @pytest.mark.checkpoint
    @pytest.mark.parametrize("skip", [True, False])
    def test_dtk_04_real_tokenizer(
        self, smollm2_tokenizer: Tokenizer, skip: bool, deltas_of: DeltasOf
    ) -> None:
        text = "<|im_start|>assistant\nHi<|im_end|>"
        ids = ids_of(smollm2_tokenizer, text)
        deltas = deltas_of(smollm2_tokenizer, ids, skip=skip)
        assert "".join(deltas) == smollm2_tokenizer.hf.decode(
            ids, skip_special_tokens=skip
        )
        assert ("".join(deltas) == text) is not skip


class TestUnknownIds:
    def test_bad_03_ids_outside_the_tokenizer_add_nothing(
        self, byte_tokenizer: Tokenizer, deltas_of: DeltasOf
    ) -> None:
        ids = [*b"ab", NO_TOKEN, *"é".encode(), NO_TOKEN, *b"c"]
        assert "".join(deltas_of(byte_tokenizer, ids)) == "abéc"

    @pytest.mark.parametrize("token", [NO_TOKEN, 2**31, 2**70, -1])
    def test_bad_03_in_the_middle_of_a_character(
        self, byte_tokenizer: Tokenizer, token: int, deltas_of: DeltasOf
    ) -> None:
        first, second = "é".encode()
        deltas = deltas_of(byte_tokenizer, [first, token, second], prompt=[token])
        assert "".join(deltas) == "é"
