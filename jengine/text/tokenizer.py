"""The tokenizer of a checkpoint, behind the few operations that the engine needs.

Hides which kind of Hugging Face tokenizer it is and where it was found: a directory, a
hub repository or a GGUF file. Ids that the tokenizer lacks (a model's vocabulary is
often padded) decode to nothing.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jengine.errors import CheckpointError, ConfigError, PromptError
from jengine.text.gguf_tokenizer import load_gguf_tokenizer
from jengine.text.pieces import REPLACEMENT, Pieces, pieces_of
from jengine.text.tokenizer_class import tokenizer_class
from jengine.text.transformers_import import import_transformers

if TYPE_CHECKING:
    import tokenizers

MODES = ("auto", "hf", "slow")

_MOST_PARTS = 4  # tokens before one that may belong to the same character
_INSISTS_ON_CLEAN_UP = (
    "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"
)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Tokenizer:
    """A loaded tokenizer.

    Attributes:
      hf: the Hugging Face object, for what is not covered here.
      max_token_id: the largest id that it knows.
      eos_token_id: its end-of-sequence id, None if it names none.
      special_token_ids: ids that `skip_special_tokens` leaves out of text.
      known_token_ids: all ids that it knows.
      backend: the compiled tokenizer, None where decoding has to go through `hf`.
      pieces: what single tokens add to a text; None where they do not tell.
    """

    hf: Any
    max_token_id: int
    eos_token_id: int | None
    special_token_ids: frozenset[int]
    known_token_ids: frozenset[int] = dataclasses.field(repr=False)
    backend: "tokenizers.Tokenizer | None" = dataclasses.field(repr=False)
    pieces: Pieces | None = dataclasses.field(default=None, repr=False)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Return the token ids of a text.

        Args:
          text: any string that UTF-8 can represent.
          add_special_tokens: whether to add what the tokenizer adds to a plain text,
            such as a BOS token. Text that a chat template made has it already.

        Raises:
          PromptError: for a lone surrogate, which no encoding represents.
        """
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            found = f"a text with a lone surrogate at character {error.start}"
            allowed = "text that can be encoded as UTF-8"
            raise PromptError("prompt", found, allowed) from error
        return self.hf.encode(
            text, add_special_tokens=add_special_tokens, verbose=False
        )

    def decode(
        self,
        token_ids: Sequence[int],
        skip_special_tokens: bool = True,
        *,
        spaces_between_special_tokens: bool = True,
    ) -> str:
        """Return the text of a series of ids; unknown ids contribute nothing."""
        known = [token for token in token_ids if token in self.known_token_ids]
        if self.backend is not None:
            return self.backend.decode(known, skip_special_tokens=skip_special_tokens)
        options: dict[str, Any] = {"skip_special_tokens": skip_special_tokens}
        if not spaces_between_special_tokens:  # some kinds do not know this option
            options["spaces_between_special_tokens"] = False
        return self.hf.decode(known, **options)

    def convert(self, token_id: int, before: Sequence[int] = ()) -> str:
        """Return the text of one id; "" for an id that the tokenizer lacks.

        Args:
          token_id: the id.
          before: ids that come before it, the last few at least. A token that is a
            part of a character has no text, and the last part has the character's.
        """
        text = self.decode([token_id], skip_special_tokens=False)
        if not text.endswith(REPLACEMENT):
            return text
        # The fewest that make it whole: others may be parts of other characters.
        for count in range(1, min(len(before), _MOST_PARTS) + 1):
            start = list(before[-count:])
            whole = self.decode([*start, token_id], skip_special_tokens=False)
            if not whole.endswith(REPLACEMENT):
                begun = self.decode(start, skip_special_tokens=False)
                return whole[len(begun.rstrip(REPLACEMENT)) :]
        return text.rstrip(REPLACEMENT)


def load_tokenizer(
    path: str | Path,
    *,
    gguf_file: str | None = None,
    mode: str = "auto",
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> Tokenizer:
    """Load the tokenizer of a checkpoint.

    Args:
      path: a directory, a .gguf file or the name of a hub repository.
      gguf_file: name of a GGUF file in `path`, to take the tokenizer from.
      mode: "auto" or "hf" for the tokenizer that transformers prefers, "slow" for the
        one written in Python, where transformers still has one.
      revision: branch, tag or commit of a hub repository.
      trust_remote_code: whether code that comes with the checkpoint may run.

    Raises:
      ConfigError: for another mode.
      CheckpointError: if no tokenizer can be loaded from there.
    """
    if mode not in MODES:
        raise ConfigError("tokenizer_mode", mode, ", ".join(map(repr, MODES)))
    if gguf_file is not None or str(path).endswith(".gguf"):
        return wrap_tokenizer(load_gguf_tokenizer(path, gguf_file, revision=revision))
    own_class, options = tokenizer_class(path), {}
    if mode == "slow":
        own_class, options = import_transformers().AutoTokenizer, {"use_fast": False}
    try:
        hf = own_class.from_pretrained(
            str(path),
            revision=revision,
            trust_remote_code=trust_remote_code,
            **options,
        )
    except (
        Exception
    ) as error:  # tokenizer files fail in as many ways as there are kinds
        reason = " ".join(str(error).split()).rstrip(".")
        raise CheckpointError(
            f"no tokenizer could be loaded from {str(path)!r}{_lack_of(path)}:"
            f" {reason}. Pass tokenizer=... to name another place, or"
            " skip_tokenizer_init=True to work with token ids only"
        ) from error
    return wrap_tokenizer(hf)


def _lack_of(path: str | Path) -> str:
    """Return what is obviously missing there, for a message; "" if nothing is."""
    if not Path(path).is_dir():
        return ", which is no folder here"
    has_one = any(Path(path).glob("tokenizer.*"))
    return "" if has_one else ", which holds no tokenizer.json"


def wrap_tokenizer(hf: Any) -> Tokenizer:
    """Wrap a Hugging Face tokenizer that exists already."""
    known = frozenset(hf.get_vocab().values())
    backend = hf.backend_tokenizer if _decodes_in_backend(hf) else None
    return Tokenizer(
        hf=hf,
        max_token_id=max(known, default=0),
        eos_token_id=hf.eos_token_id,
        special_token_ids=_special_token_ids(hf),
        known_token_ids=known,
        backend=backend,
        pieces=None if backend is None else pieces_of(backend),
    )


def _is_fast(hf: Any) -> bool:
    return isinstance(hf, import_transformers().PreTrainedTokenizerFast)


def _special_token_ids(hf: Any) -> frozenset[int]:
    """Return what decoding drops: it goes by the token's flag, not by its role."""
    if not _is_fast(hf):
        return frozenset(hf.all_special_ids)
    added = hf.added_tokens_decoder.items()
    return frozenset(token_id for token_id, token in added if token.special)


def _decodes_in_backend(hf: Any) -> bool:
    """Tell whether `hf.decode` does nothing beyond what its backend does."""
    if not _is_fast(hf):
        return False
    fast = import_transformers().PreTrainedTokenizerFast
    if type(hf).decode is not fast.decode or type(hf)._decode is not fast._decode:
        return False
    return not _cleans_up(hf)


def _cleans_up(hf: Any) -> bool:
    """Tell whether decoding takes spaces out of the text.

    Files of Llama 3 ask for it; transformers leaves a BPE's text alone even so, unless
    it is told by an option of a name of its own.
    """
    insists = getattr(hf, _INSISTS_ON_CLEAN_UP, True)  # older ones did as asked
    is_bpe = type(hf.backend_tokenizer.model).__name__ == "BPE"
    return hf.clean_up_tokenization_spaces and (insists or not is_bpe)
