"""Text grows as the tokenizer decodes the whole, and never shows half a character."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jengine.text.detokenizer import IncrementalDetokenizer
from jengine.text.tokenizer import Tokenizer, wrap_tokenizer

FAMILY = "👩‍👩‍👧‍👦"
UNICODE_TEXT = f"😀 and 🦙🦙, 你好 한 {FAMILY} é end"
NO_TOKEN = 319  # no id of any tokenizer here, but one of a padded model vocabulary


def deltas_of(
    tokenizer: Tokenizer,
    token_ids: Sequence[int],
    *,
    prompt: Sequence[int] = (),
    num_each: int = 1,
    skip: bool = True,
) -> list[str]:
    detokenizer = IncrementalDetokenizer(tokenizer, prompt, skip_special_tokens=skip)
    starts = range(0, len(token_ids), num_each)
    deltas = [detokenizer.append(token_ids[i : i + num_each]) for i in starts]
    deltas.append(detokenizer.flush())
    assert "".join(deltas) == detokenizer.text
    return deltas


def ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


class TestCharacterOverSeveralTokens:
    @pytest.mark.parametrize("num_each", [1, 2, 3, 1000])
    def test_dtk_01_byte_tokens(self, byte_tokenizer: Tokenizer, num_each: int) -> None:
        ids = ids_of(byte_tokenizer, UNICODE_TEXT)
        deltas = deltas_of(byte_tokenizer, ids, num_each=num_each)
        assert "".join(deltas) == UNICODE_TEXT
        assert not any("\ufffd" in delta for delta in deltas)

    @pytest.mark.parametrize("num_each", [1, 2])
    def test_dtk_01_byte_fallback(
        self, sentencepiece_tokenizer: Tokenizer, num_each: int
    ) -> None:
        ids = ids_of(sentencepiece_tokenizer, UNICODE_TEXT)
        deltas = deltas_of(sentencepiece_tokenizer, ids, num_each=num_each)
        assert "".join(deltas) == UNICODE_TEXT
        assert not any("\ufffd" in delta for delta in deltas)

    @pytest.mark.checkpoint
    def test_dtk_01_real_tokenizer(self, smollm2_tokenizer: Tokenizer) -> None:
        script = [504, 476, 12390, 7199, 18, 40303, 218, 216, 18645, 250, 48392, 138]
        deltas = deltas_of(smollm2_tokenizer, script)
        assert deltas[:5] == ["The", ' "', "desc", "ribed", '"']
        assert deltas[5:8] == [" ", "😀", " "]
        assert "".join(deltas) == 'The "described" 😀 你好'

    def test_a_character_appears_with_its_last_byte(
        self, byte_tokenizer: Tokenizer
    ) -> None:
        deltas = deltas_of(byte_tokenizer, list("a😀b".encode()))
        assert deltas == ["a", "", "", "", "😀", "b", ""]

    def test_flush_gives_out_an_unfinished_character(
        self, byte_tokenizer: Tokenizer
    ) -> None:
        ids = list("a😀".encode())[:-1]
        assert deltas_of(byte_tokenizer, ids)[-1] == "\ufffd"
        assert "".join(deltas_of(byte_tokenizer, ids)) == byte_tokenizer.decode(ids)


class TestPromptEndsInsideCharacter:
    def test_dtk_02_output_completes_it(self, byte_tokenizer: Tokenizer) -> None:
        prompt = [*b"secret words ", 0xF0, 0x9F]
        text = "".join(deltas_of(byte_tokenizer, [0x98, 0x80, *b" The"], prompt=prompt))
        assert text == "😀 The"

    def test_dtk_02_output_leaves_it_broken(self, byte_tokenizer: Tokenizer) -> None:
        prompt = [*b"secret words ", 0xF0, 0x9F]
        assert "".join(deltas_of(byte_tokenizer, list(b"The"), prompt=prompt)) == "The"

    def test_dtk_02_output_breaks_it_in_another_way(
        self, byte_tokenizer: Tokenizer
    ) -> None:
        prompt = [*b"secret words ", 0xF0]
        text = "".join(deltas_of(byte_tokenizer, [0x9F, *b"The"], prompt=prompt))
        assert text == "The"

    @pytest.mark.parametrize("num_broken", [1, 2, 3])
    def test_dtk_02_byte_fallback(
        self, sentencepiece_tokenizer: Tokenizer, num_broken: int
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
    def test_dtk_02_real_tokenizer(self, smollm2_tokenizer: Tokenizer) -> None:
        prompt = [*ids_of(smollm2_tokenizer, "secret words "), 10813, 242]
        completed = "".join(deltas_of(smollm2_tokenizer, [218, 504], prompt=prompt))
        assert completed == "😀The"
        assert "".join(deltas_of(smollm2_tokenizer, [504], prompt=prompt)) == "The"

    def test_a_replacement_character_of_the_output_stays(
        self, byte_tokenizer: Tokenizer
    ) -> None:
        deltas = deltas_of(byte_tokenizer, list("\ufffdx".encode()), prompt=b"ok")
        assert "".join(deltas) == "\ufffdx"


class TestSentencepieceSpaces:
    def test_dtk_03_spaces_and_bytes(self, sentencepiece_tokenizer: Tokenizer) -> None:
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
    ) -> None:
        tokenizer = sentencepiece_tokenizer
        prompt = tokenizer.encode(prompt_text)  # at least BOS
        output = tokenizer.hf.convert_tokens_to_ids(output_tokens)
        shown = tokenizer.decode(prompt, skip)
        expected = tokenizer.decode(prompt + output, skip)[len(shown) :]
        deltas = deltas_of(tokenizer, output, prompt=prompt, skip=skip)
        assert "".join(deltas) == expected

    def test_dtk_03_invalid_bytes_then_text(
        self, sentencepiece_tokenizer: Tokenizer
    ) -> None:
        tokenizer = sentencepiece_tokenizer
        prompt = tokenizer.encode("the cat")
        names = ["▁sat", "<0xF0>", "<0x9F>", "▁world"]
        output = tokenizer.hf.convert_tokens_to_ids(names)
        assert tokenizer.hf.decode(output) == "sat\ufffd\ufffd world"
        deltas = deltas_of(tokenizer, output, prompt=prompt)
        assert deltas == [" sat", "", "", "\ufffd\ufffd world", ""]

    def test_skipped_special_token_does_not_eat_a_space(
        self, sentencepiece_tokenizer: Tokenizer
    ) -> None:
        tokenizer = sentencepiece_tokenizer
        output = [*ids_of(tokenizer, "the"), 2, *ids_of(tokenizer, "cat")]
        assert deltas_of(tokenizer, output) == ["the", "", " cat", ""]

    def test_bytes_after_a_character_that_is_out_do_not_take_it_back(
        self, sentencepiece_tokenizer: Tokenizer
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
        self, tokenizer: Tokenizer, skip: bool, num_each: int
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
        self, smollm2_tokenizer: Tokenizer, skip: bool
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
        self, byte_tokenizer: Tokenizer
    ) -> None:
        ids = [*b"ab", NO_TOKEN, *"é".encode(), NO_TOKEN, *b"c"]
        assert "".join(deltas_of(byte_tokenizer, ids)) == "abéc"

    @pytest.mark.parametrize("token", [NO_TOKEN, 2**31, 2**70, -1])
    def test_bad_03_in_the_middle_of_a_character(
        self, byte_tokenizer: Tokenizer, token: int
    ) -> None:
        first, second = "é".encode()
        deltas = deltas_of(byte_tokenizer, [first, token, second], prompt=[token])
        assert "".join(deltas) == "é"


class TestEndlessRubbish:
    @pytest.mark.parametrize("kind", ["byte", "sentencepiece"])
    @pytest.mark.parametrize("byte", [0xFF, 0x80, 0xF0])
    def test_text_keeps_coming(
        self,
        byte_tokenizer: Tokenizer,
        sentencepiece_tokenizer: Tokenizer,
        kind: str,
        byte: int,
    ) -> None:
        tokenizer = byte_tokenizer if kind == "byte" else sentencepiece_tokenizer
        token = byte if kind == "byte" else byte + 3
        detokenizer = IncrementalDetokenizer(tokenizer, [])
        for num_tokens in range(1, 300):
            detokenizer.append([token])
            assert len(detokenizer.text) >= num_tokens - 3
            assert len(detokenizer._window) <= 10  # work stays bounded
        detokenizer.flush()
        assert detokenizer.text == tokenizer.decode([token] * 299)

    @pytest.mark.parametrize("num_bad", range(1, 7))
    def test_a_run_of_bytes_that_began_badly_stays_bad(
        self, sentencepiece_tokenizer: Tokenizer, num_bad: int
    ) -> None:
        # Cut short, the run would be valid; the decoder judges it as a whole.
        run = [0xFF] * num_bad + list("😀A".encode() * 20)
        ids = [byte + 3 for byte in run] + ids_of(sentencepiece_tokenizer, "world")
        text = "".join(deltas_of(sentencepiece_tokenizer, ids))
        assert text == sentencepiece_tokenizer.decode(ids)

    def test_window_stays_short_on_valid_bytes(
        self, sentencepiece_tokenizer: Tokenizer
    ) -> None:
        ids = ids_of(sentencepiece_tokenizer, "😀🦙é" * 100)
        detokenizer = IncrementalDetokenizer(sentencepiece_tokenizer, [])
        for token in ids:
            detokenizer.append([token])
            assert len(detokenizer._window) <= 14
        assert detokenizer.text == "😀🦙é" * 100


class Reversing:
    """Decodes to text that changes from its start, as no window can follow."""

    def decode(self, token_ids: list[int], **_: bool) -> str:
        return "".join(chr(97 + token) for token in reversed(token_ids))


class Tidying:
    """Decodes words, then removes the space before a full stop."""

    words = ("one", "two", ".", "")

    def decode(self, token_ids: list[int], **_: bool) -> str:
        joined = " ".join(self.words[token] for token in token_ids)
        return joined.replace(" .", ".")


def in_python(hf: object, num_tokens: int) -> Tokenizer:
    return Tokenizer(
        hf=hf,
        max_token_id=num_tokens - 1,
        eos_token_id=None,
        special_token_ids=frozenset(),
        known_token_ids=frozenset(range(num_tokens)),
        backend=None,
    )


def test_text_that_changes_backwards_is_neither_lost_nor_repeated() -> None:
    detokenizer = IncrementalDetokenizer(in_python(Reversing(), 26), [0, 1])
    deltas = [detokenizer.append([token]) for token in range(26)]
    assert sorted("".join(deltas)) == [chr(97 + token) for token in range(26)]


def test_a_tokenizer_that_tidies_up_equals_the_whole() -> None:
    tidying = in_python(Tidying(), 4)
    ids = [0, 1, 2, 1, 0, 0, 2] * 5
    assert "".join(deltas_of(tidying, ids)) == tidying.decode(ids)


def test_tokens_without_text_do_not_grow_the_window() -> None:
    silent = in_python(Silent(), 1)
    detokenizer = IncrementalDetokenizer(silent, [])
    assert detokenizer.append([0] * 1000) == ""
    assert len(detokenizer._window) <= 64


class Silent:
    def decode(self, token_ids: list[int], **_: bool) -> str:
        return ""


@pytest.mark.parametrize("seed", range(20))
def test_random_ids_equal_the_whole(byte_tokenizer: Tokenizer, seed: int) -> None:
    rng = random.Random(seed)
    ids = [rng.randrange(264) for _ in range(200)]
    for skip in (True, False):
        deltas = deltas_of(byte_tokenizer, ids, skip=skip)
        assert "".join(deltas) == byte_tokenizer.hf.decode(
            [token for token in ids if token < 259], skip_special_tokens=skip
        )


@pytest.mark.checkpoint
@pytest.mark.parametrize("seed", range(5))
def test_random_ids_of_the_real_tokenizer_equal_the_whole(
    smollm2_tokenizer: Tokenizer, seed: int
) -> None:
    rng = random.Random(seed)
    ids = [rng.randrange(49152) for _ in range(500)]
    deltas = deltas_of(smollm2_tokenizer, ids)
    assert "".join(deltas) == smollm2_tokenizer.decode(ids)


class TestProperties:
    @given(text=st.text(), cuts=st.lists(st.integers(1, 4)), prompt=st.text())
    def test_any_split_gives_the_text(
        self,
        byte_tokenizer: Tokenizer,
        text: str,
        cuts: list[int],
        prompt: str,
    ) -> None:
        ids = ids_of(byte_tokenizer, text)
        detokenizer = IncrementalDetokenizer(
            byte_tokenizer, ids_of(byte_tokenizer, prompt)
        )
        deltas = []
        for cut in cuts:
            deltas.append(detokenizer.append(ids[:cut]))
            ids = ids[cut:]
        deltas += [detokenizer.append(ids), detokenizer.flush()]
        assert "".join(deltas) == text == detokenizer.text

    @given(text=st.text("the cat sat😀你éx"), prompt=st.text("the cat😀"))
    def test_sentencepiece_text_continues_the_prompt(
        self, sentencepiece_tokenizer: Tokenizer, text: str, prompt: str
    ) -> None:
        tokenizer = sentencepiece_tokenizer
        prompt_ids, ids = tokenizer.encode(prompt), ids_of(tokenizer, text)
        shown = tokenizer.decode(prompt_ids)
        expected = tokenizer.decode(prompt_ids + ids)[len(shown) :]
        assert "".join(deltas_of(tokenizer, ids, prompt=prompt_ids)) == expected

    @given(
        ids=st.lists(st.integers(0, 320), max_size=30),
        prompt=st.lists(st.integers(0, 320), max_size=12),
        num_each=st.integers(2, 30),
        skip=st.booleans(),
    )
    def test_rubbish_does_not_depend_on_the_split(
        self,
        sentencepiece_tokenizer: Tokenizer,
        ids: list[int],
        prompt: list[int],
        num_each: int,
        skip: bool,
    ) -> None:
        tokenizer = sentencepiece_tokenizer
        single = deltas_of(tokenizer, ids, prompt=prompt, skip=skip)
        chunks = deltas_of(tokenizer, ids, prompt=prompt, skip=skip, num_each=num_each)
        assert "".join(single) == "".join(chunks)
