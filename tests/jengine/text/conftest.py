"""Tokenizers of each kind, loaded once."""

import pathlib
from collections.abc import Callable, Sequence

import pytest

from jengine.testing import write_byte_tokenizer, write_sentencepiece_tokenizer
from jengine.text.detokenizer import IncrementalDetokenizer
from jengine.text.tokenizer import Tokenizer, load_tokenizer


@pytest.fixture(scope="session")
def byte_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load_tokenizer(write_byte_tokenizer(tmp_path_factory.mktemp("byte")))


@pytest.fixture(scope="session")
def sentencepiece_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    directory = tmp_path_factory.mktemp("sentencepiece")
    return load_tokenizer(write_sentencepiece_tokenizer(directory))


@pytest.fixture(scope="session")
def smollm2_tokenizer(smollm2_gguf: pathlib.Path) -> Tokenizer:
    return load_tokenizer(smollm2_gguf)


@pytest.fixture(scope="session")
def deltas_of() -> Callable[..., list[str]]:
    """A function from ids to the text of each piece, and what the end gives out."""

    def deltas_of(
        tokenizer: Tokenizer,
        token_ids: Sequence[int],
        *,
        prompt: Sequence[int] = (),
        num_each: int = 1,
        skip: bool = True,
    ) -> list[str]:
        detokenizer = IncrementalDetokenizer(
            tokenizer, prompt, skip_special_tokens=skip
        )
        starts = range(0, len(token_ids), num_each)
        deltas = [detokenizer.append(token_ids[i : i + num_each]) for i in starts]
        deltas.append(detokenizer.flush())
        return deltas

    return deltas_of
