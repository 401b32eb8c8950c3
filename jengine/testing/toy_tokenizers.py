"""Small tokenizers with the traits that real ones differ in.

Each is written as `tokenizer.json` and `tokenizer_config.json`, to a directory of its
own or into a checkpoint directory, where `transformers.AutoTokenizer` finds it.

- `write_byte_tokenizer`: one token a byte, in the manner of GPT-2 vocabularies.
- `write_sentencepiece_tokenizer`: spaces belong to the words, the first is stripped
  when decoding, characters outside the vocabulary fall back to bytes, a BOS is added.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jengine.testing.checkpoint_files import write_json

if TYPE_CHECKING:
    import tokenizers

BYTE_SPECIAL_TOKENS = ("<bos>", "<eos>", "<pad>")
"""Ids 256, 257 and 258 of the byte tokenizer; ids 0 to 255 are the bytes."""

SENTENCEPIECE_WORDS = ("the", "cat", "sat", "on", "world", "hello", "a", "dog")
"""Words that are one token, each with and without the space before it."""

CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{{ message['role'] + ': ' + message['content'] + eos_token + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)


def write_byte_tokenizer(
    directory: str | Path, *, chat_template: str | None = CHAT_TEMPLATE
) -> Path:
    """Write a tokenizer whose id is the byte; `encode` adds no BOS.

    Args:
      directory: made if missing.
      chat_template: stored as the model's chat template; None stores none.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    vocab = {char: byte for byte, char in enumerate(_byte_alphabet())}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=False
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(BYTE_SPECIAL_TOKENS))
    bos, eos, pad = BYTE_SPECIAL_TOKENS
    names = {"bos": bos, "eos": eos, "pad": pad}
    return write_tokenizer(directory, tokenizer, names, chat_template=chat_template)


def write_sentencepiece_tokenizer(
    directory: str | Path,
    *,
    words: Sequence[str] = SENTENCEPIECE_WORDS,
    chat_template: str | None = CHAT_TEMPLATE,
) -> Path:
    """Write a tokenizer that behaves like a SentencePiece BPE with byte fallback.

    Ids: 0 `<unk>`, 1 `<s>`, 2 `</s>`, 3 to 258 the bytes, then the words and their
    beginnings. The byte tokens are not special, or decoding would drop them.

    Args:
      directory: made if missing.
      words: tokens with and without a space before them.
      chat_template: stored as the model's chat template; None stores none.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, processors

    vocab, merges = _grow_words(words)
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocab,
            merges=merges,
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    names = {"unk": "<unk>", "bos": "<s>", "eos": "</s>"}
    return write_tokenizer(directory, tokenizer, names, chat_template=chat_template)


def write_tokenizer(
    directory: str | Path,
    tokenizer: "tokenizers.Tokenizer",
    special_tokens: Mapping[str, str],
    *,
    chat_template: str | None = None,
) -> Path:
    """Write a `tokenizers.Tokenizer` so that AutoTokenizer loads it.

    Args:
      directory: made if missing.
      tokenizer: the tokenizer, special tokens added.
      special_tokens: token text by role: "bos", "eos", "pad", "unk".
      chat_template: stored as the model's chat template; None stores none.

    Returns:
      The directory.
    """
    root = Path(directory)
    root.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(root / "tokenizer.json"))
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 1_000_000,
    }
    config |= {f"{role}_token": text for role, text in special_tokens.items()}
    if chat_template is not None:
        config["chat_template"] = chat_template
    write_json(root / "tokenizer_config.json", config)
    return root


def _byte_alphabet() -> list[str]:
    """Return the character that stands for each byte in a byte-level vocabulary.

    Printable bytes of Latin-1 stand for themselves; the others are moved, in order, to
    256 and above.

    Source: GPT-2's `bytes_to_unicode`.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    moved = [byte for byte in range(256) if byte not in printable]
    place = {byte: 256 + index for index, byte in enumerate(moved)}
    return [chr(place.get(byte, byte)) for byte in range(256)]


def _grow_words(words: Sequence[str]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return a vocabulary and the merges that build each word from its letters."""
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    letters = sorted({letter for word in words for letter in word})
    tokens = ["<unk>", "<s>", "</s>", *byte_tokens, "▁", *letters]
    vocab = {token: index for index, token in enumerate(tokens)}
    merges: list[tuple[str, str]] = []
    for word in [f"▁{word}" for word in words] + list(words):
        for end in range(2, len(word) + 1):
            if word[:end] not in vocab:
                vocab[word[:end]] = len(vocab)
                merges.append((word[: end - 1], word[end - 1]))
    return vocab, merges
