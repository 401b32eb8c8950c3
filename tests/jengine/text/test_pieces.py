"""Text that is looked up token by token is the text that decoding gives."""

import dataclasses
from collections.abc import Callable, Sequence

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from jengine.text.pieces import pieces_of
from jengine.text.tokenizer import Tokenizer

DeltasOf = Callable[..., list[str]]


def check_as_decoded(
    tokenizer: Tokenizer,
    ids: Sequence[int],
    prompt: Sequence[int],
    skip: bool,
    deltas_of: DeltasOf,
) -> None:
    """The same text with each token as without a single piece."""
    assert tokenizer.pieces is not None
    plain = dataclasses.replace(tokenizer, pieces=None)
    expected = deltas_of(plain, ids, prompt=prompt, skip=skip)
    assert deltas_of(tokenizer, ids, prompt=prompt, skip=skip) == expected


class TestSameTextAsDecoding:
    @given(
        ids=st.lists(st.integers(0, 320) | st.sampled_from([*"aé😀 ".encode()])),
        prompt=st.lists(st.integers(0, 320), max_size=3),
        skip=st.booleans(),
    )
    def test_bytes_of_a_byte_level_decoder(
        self,
        byte_tokenizer: Tokenizer,
        ids: list[int],
        prompt: list[int],
        skip: bool,
        deltas_of: DeltasOf,
    ) -> None:
        check_as_decoded(byte_tokenizer, ids, prompt, skip, deltas_of)

    @given(data=st.data(), skip=st.booleans())
    def test_words_and_bytes_of_sentencepiece(
        self,
        sentencepiece_tokenizer: Tokenizer,
        data: st.DataObject,
        skip: bool,
        deltas_of: DeltasOf,
    ) -> None:
        tokenizer = sentencepiece_tokenizer
        words = st.integers(0, tokenizer.max_token_id + 1)
        of_bytes = st.sampled_from([3 + byte for byte in "aé😀".encode()])
        ids = data.draw(st.lists(words | of_bytes))
        prompt = data.draw(st.lists(words | of_bytes, max_size=3))
        check_as_decoded(tokenizer, ids, prompt, skip, deltas_of)

    @pytest.mark.checkpoint
    @given(ids=st.lists(st.integers(0, 49151)), skip=st.booleans())
    def test_the_real_tokenizer(
        self,
        smollm2_tokenizer: Tokenizer,
        ids: list[int],
        skip: bool,
        deltas_of: DeltasOf,
    ) -> None:
        check_as_decoded(smollm2_tokenizer, ids, [504], skip, deltas_of)


class TestPieces:
    def test_a_part_of_a_character_has_none(self, byte_tokenizer: Tokenizer) -> None:
        assert byte_tokenizer.pieces is not None
        assert byte_tokenizer.pieces[ord("z")] == "z"
        assert byte_tokenizer.pieces["é".encode()[0]] is None

    def test_a_byte_of_sentencepiece_has_none(
        self, sentencepiece_tokenizer: Tokenizer
    ) -> None:
        pieces, to_id = (
            sentencepiece_tokenizer.pieces,
            sentencepiece_tokenizer.hf.convert_tokens_to_ids,
        )
        assert pieces is not None
        assert pieces[to_id("<0x41>")] is None  # it may follow a broken one
        assert pieces[to_id("▁on")] == " on"

    @pytest.mark.parametrize(
        "decoder",
        [
            tokenizers.decoders.WordPiece(),
            tokenizers.decoders.CTC(),
            tokenizers.decoders.Sequence(
                [tokenizers.decoders.Fuse(), tokenizers.decoders.Strip(" ", 0, 1)]
            ),
            None,
        ],
    )
    def test_none_where_the_decoder_looks_at_neighbours(self, decoder: object) -> None:
        backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, "a"))
        if decoder is not None:
            backend.decoder = decoder
        assert pieces_of(backend) is None

    def test_none_without_a_token_to_stand_behind(self) -> None:
        backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"b": 0}, "b"))
        backend.decoder = tokenizers.decoders.ByteLevel()
        assert pieces_of(backend) is None
