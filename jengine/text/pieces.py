"""What single tokens add to a text, for decoders that join them one by one."""

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tokenizers

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""What decoders write for bytes that are no character, or not one yet."""

_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
# What they make of a token depends on its neighbours in two cases only: a byte may be
# part of a character, and the first token of a text may lose its space.
_LOCAL = frozenset({"ByteLevel", "Metaspace", "Replace", "ByteFallback", "Fuse"})


class Pieces(dict[int, str | None]):
    """The text that each token adds behind another, filled as tokens are asked for.

    None stands for a token whose text depends on its neighbours: a part of a
    character, or a byte.
    """

    def __init__(self, backend: "tokenizers.Tokenizer", anchor: int) -> None:
        """Start empty; `anchor` is a token that is text by itself."""
        super().__init__()
        self._backend = backend
        self._anchor = anchor
        self._before = len(self._decode(anchor))

    def __missing__(self, token: int) -> str | None:
        """Decode a token that has not been asked for yet."""
        found: str | None = self._decode(self._anchor, token)[self._before :]
        name = self._backend.id_to_token(token) or ""
        if REPLACEMENT in found or _BYTE.fullmatch(name):
            found = None
        self[token] = found
        return found

    def _decode(self, *tokens: int) -> str:
        return self._backend.decode(list(tokens), skip_special_tokens=False)


def pieces_of(backend: "tokenizers.Tokenizer") -> Pieces | None:
    """Return the pieces of a tokenizer; None if its decoder looks at neighbours."""
    anchor = backend.token_to_id("a")
    if anchor is None or backend.decoder is None:
        return None
    state: dict[str, Any] = json.loads(backend.decoder.__getstate__())
    is_local = all(map(_is_local, state.get("decoders", [state])))
    return Pieces(backend, anchor) if is_local else None


def _is_local(decoder: dict[str, Any]) -> bool:
    if decoder["type"] == "Strip":
        return not decoder["stop"]  # the end of a text moves
    return decoder["type"] in _LOCAL
