"""Whatever the ids and however they are split: the text is that of the whole."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jengine.text.detokenizer import IncrementalDetokenizer
from jengine.text.tokenizer import Tokenizer

DeltasOf = Callable[..., list[str]]


def ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


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
        text = ""
        for num_tokens in range(1, 300):
            text += detokenizer.append([token])
            assert len(text) >= num_tokens - 3
            assert len(detokenizer._window) <= 10  # work stays bounded
        text += detokenizer.flush()
        assert text == tokenizer.decode([token] * 299)

    @pytest.mark.parametrize("num_bad", range(1, 7))
    def test_a_run_of_bytes_that_began_badly_stays_bad(
        self, sentencepiece_tokenizer: Tokenizer, num_bad: int, deltas_of: DeltasOf
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
        text = ""
        for token in ids:
            text += detokenizer.append([token])
            assert len(detokenizer._window) <= 14
        assert text == "😀🦙é" * 100


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


class Silent:
    def decode(self, token_ids: list[int], **_: bool) -> str:
        return ""


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


def test_a_tokenizer_that_tidies_up_equals_the_whole(deltas_of: DeltasOf) -> None:
    tidying = in_python(Tidying(), 4)
    ids = [0, 1, 2, 1, 0, 0, 2] * 5
    assert "".join(deltas_of(tidying, ids)) == tidying.decode(ids)


def test_tokens_without_text_do_not_grow_the_window() -> None:
    silent = in_python(Silent(), 1)
    detokenizer = IncrementalDetokenizer(silent, [])
    assert detokenizer.append([0] * 1000) == ""
    assert len(detokenizer._window) <= 64


@pytest.mark.parametrize("seed", range(20))
def test_random_ids_equal_the_whole(
    byte_tokenizer: Tokenizer, seed: int, deltas_of: DeltasOf
) -> None:
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
    smollm2_tokenizer: Tokenizer, seed: int, deltas_of: DeltasOf
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
        assert "".join(deltas) == text

    @given(text=st.text("the cat sat😀你éx"), prompt=st.text("the cat😀"))
    def test_sentencepiece_text_continues_the_prompt(
        self,
        sentencepiece_tokenizer: Tokenizer,
        text: str,
        prompt: str,
        deltas_of: DeltasOf,
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
        deltas_of: DeltasOf,
    ) -> None:
        tokenizer = sentencepiece_tokenizer
        single = deltas_of(tokenizer, ids, prompt=prompt, skip=skip)
        chunks = deltas_of(tokenizer, ids, prompt=prompt, skip=skip, num_each=num_each)
        assert "".join(single) == "".join(chunks)
