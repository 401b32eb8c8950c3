"""Trains the demo model's tokenizer: byte-level BPE, so that no text is lost."""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import (
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    processors,
    trainers,
)

from jengine.testing.toy_tokenizers import write_tokenizer

BOS, EOS = "<|begin_of_story|>", "<|end_of_story|>"
CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages if message['role'] == 'user' %}"
    "{% if loop.last %}{{ message['content'] | trim + '\n' }}{% endif %}"
    "{% endfor %}"
)
"""The last thing that the user said, then a new line: the model was trained on requests
for a story in this form. It has no memory of a conversation."""


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Return a tokenizer for these texts.

    Args:
      texts: what it shall encode in few tokens.
      vocab_size: entries, among them BOS as 0, EOS as 1 and the 256 bytes.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, 0)]
    )
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json with the chat template."""
    names = {"bos": BOS, "eos": EOS}
    write_tokenizer(folder, tokenizer, names, chat_template=CHAT_TEMPLATE)
