"""The checkpoint that stands in when no model is named.

It is not trained: its next-token table is written out below, as a chain of phrases.
Greedy decoding recites eight sentences and stops; sampling mixes their parts. It shows
that the engine runs, nothing more.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from jengine.testing.markov import FORBIDDEN, write_markov_checkpoint
from jengine.testing.toy_tokenizers import write_tokenizer

DEMO_DESCRIPTION = (
    "the built-in demo checkpoint (not a trained model: it chains fixed phrases, "
    "whatever the prompt)"
)

_PHRASES = (
    (
        " In the morning",
        " At low tide",
        " Before the rain",
        " On market day",
        " Every winter",
        " After supper",
        " Once a year",
        " That night",
    ),
    (
        " the lighthouse keeper",
        " a grey cat",
        " the baker's daughter",
        " an old sailor",
        " the schoolmaster",
        " a young fox",
        " the clockmaker",
        " everyone in the village",
    ),
    (
        " counted",
        " watched over",
        " ran past",
        " told stories about",
        " drew",
        " dreamed of",
        " repaired",
        " listened to",
    ),
    (
        " the boats in the bay",
        " the sleeping gulls",
        " the open windows",
        " the islands in the north",
        " the stars above the harbour",
        " the warm kitchen",
        " the tower clock",
        " the waves",
    ),
    (
        ".",
        " for an hour.",
        " without a sound.",
        " and laughed.",
        " by candlelight.",
        " until dawn.",
        " with great care.",
        " and went home.",
    ),
)
"""Parts of a sentence, in order; each column reads as a sentence."""

_SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_BOS, _EOS, _FIRST_BYTE, _FIRST_PHRASE = 1, 2, 3, 3 + 256
_WIDTH = len(_PHRASES[0])
_VOCAB_SIZE = _FIRST_PHRASE + len(_PHRASES) * _WIDTH

_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] }}"
    "{{ '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_README = f"""\
This checkpoint was written by jengine: {DEMO_DESCRIPTION}.
Its logits depend on the last token only. Use it to see the engine run.
"""


def write_demo_checkpoint(directory: str | Path) -> Path:
    """Write the demo checkpoint with its tokenizer; each time the same bytes.

    Args:
      directory: made if missing.

    Returns:
      The directory.
    """
    root = write_markov_checkpoint(
        directory,
        dict(_table()),
        vocab_size=_VOCAB_SIZE,
        hidden_size=64,
        eos_token_id=_EOS,
        generation_config={"bos_token_id": _BOS, "eos_token_id": _EOS},
    )
    _write_tokenizer(root)
    (root / "README.md").write_text(_README, encoding="utf-8")
    return root


def _phrase_id(part: int, column: int) -> int:
    return _FIRST_PHRASE + part * _WIDTH + column


def _table() -> Iterator[tuple[int, np.ndarray]]:
    """Yield each token and the row of logits after it."""
    for token in range(_FIRST_PHRASE):  # whatever a prompt can end with
        yield token, _row(part=0, likely=0)
    for part in range(len(_PHRASES) - 1):
        for column in range(_WIDTH):
            yield _phrase_id(part, column), _row(part=part + 1, likely=column)
    last = len(_PHRASES) - 1
    for column in range(_WIDTH):
        row = _row(part=0, likely=(column + 1) % _WIDTH)
        row[_EOS] = 4.0 if column + 1 == _WIDTH else 0.0
        yield _phrase_id(last, column), row


def _row(*, part: int, likely: int) -> np.ndarray:
    """Return logits that allow any phrase of a part and favour one."""
    row = np.full(_VOCAB_SIZE, FORBIDDEN, dtype=np.float32)
    row[_phrase_id(part, 0) : _phrase_id(part, _WIDTH)] = 0.0
    row[_phrase_id(part, likely)] = 2.0
    return row


def _write_tokenizer(directory: Path) -> None:
    """Write a tokenizer with a token a phrase; other text falls back to bytes."""
    from tokenizers import Tokenizer, decoders, models

    pieces = [(token, 0.0) for token in _SPECIAL_TOKENS]
    pieces += [(f"<0x{byte:02X}>", 0.0) for byte in range(256)]
    pieces += [(phrase, 0.0) for part in _PHRASES for phrase in part]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(list(_SPECIAL_TOKENS))
    unk, bos, eos = _SPECIAL_TOKENS
    names = {"unk": unk, "bos": bos, "eos": eos}
    write_tokenizer(directory, tokenizer, names, chat_template=_CHAT_TEMPLATE)
