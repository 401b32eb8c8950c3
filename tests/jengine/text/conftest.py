"""Tokenizers of each kind, loaded once."""

import pathlib

import pytest

from jengine.testing import write_byte_tokenizer, write_sentencepiece_tokenizer
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
