"""Turn the tokens of one request into text as they come.

The text of a token depends on its neighbours: a character may be spread over several
tokens, and a leading space may belong to the word or be dropped at the start of a
text. So each token is decoded together with a few before it, the prompt's last ones to
begin with, and only the text that it adds is passed on. A token that is whole
characters, behind others that are, needs no decoding: its text is looked up.

The result equals the tokenizer's own decoding of the whole, with two exceptions that
follow from never taking text back. Where a decoder replaces a whole run of byte tokens
because of one bad byte in it, the characters before that byte stay. Where a
tokenizer's clean-up rewrites earlier text, the earlier text stays.

Source: the windowed decoding of Hugging Face text-generation-inference.
"""

import functools
from collections.abc import Callable, Sequence

from jengine.text.pieces import REPLACEMENT
from jengine.text.tokenizer import Tokenizer

_MAX_HELD = 3  # an unfinished UTF-8 character has at most three bytes
_KEEP, _TRIM_AT, _TRIM_FORCED_AT = 5, 10, 64  # tokens in the window


class IncrementalDetokenizer:
    """The text of one request, growing by token.

    Work per token depends on the window, a dozen tokens, and not on the length of the
    text. How the tokens are split over calls makes no difference.

    A character that is not complete yet is kept back, and so are up to three
    replacement characters at the end, because they may be the start of one. `flush`
    gives them out when nothing follows. A character that the prompt began and the
    output completes belongs to the output; if it stays broken, its replacement
    character belongs to the prompt.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_token_ids: Sequence[int],
        *,
        skip_special_tokens: bool = True,
        spaces_between_special_tokens: bool = True,
    ) -> None:
        self._decode = _decoder(
            tokenizer, skip_special_tokens, spaces_between_special_tokens
        )
        self._pieces = tokenizer.pieces
        self._known = tokenizer.known_token_ids
        self._hidden = tokenizer.special_token_ids if skip_special_tokens else ()
        self._window = self._last_visible(prompt_token_ids)
        self._num_settled = len(self._window)  # leading tokens given out whole
        self._decoded = self._decode(self._window)
        self._num_broken = _count_broken_end(self._decoded)  # of the prompt
        self._shown = self._decoded[: len(self._decoded) - self._num_broken]
        self._is_ahead = False  # of the two: the window's last tokens were looked up

    def append(self, token_ids: Sequence[int]) -> str:
        """Take the next tokens and return the text that is complete now."""
        return "".join([self._push(token) for token in token_ids])

    def flush(self) -> str:
        """Return what was kept back, as the tokenizer decodes it; nothing follows."""
        added = self._own(self._decoded[len(self._shown) :])
        self._shown = self._decoded
        return added

    def _push(self, token: int) -> str:
        if not self._is_visible(token):
            return ""
        if self._pieces is not None and self._is_settled():
            piece = self._pieces[token]
            if piece is not None:
                self._go_ahead(token)
                return piece
        return self._push_decoded(token)

    def _is_settled(self) -> bool:
        """Whether there is text, all of it given out, and nothing is pending."""
        if self._is_ahead:
            return True
        has_all_out = len(self._decoded) == len(self._shown)
        return has_all_out and bool(self._window) and not self._num_broken

    def _go_ahead(self, token: int) -> None:
        if not self._is_ahead:
            self._is_ahead = True
            self._window = []
        self._window.append(token)
        if len(self._window) > _TRIM_AT:
            del self._window[:-_KEEP]

    def _push_decoded(self, token: int) -> str:
        if self._is_ahead:
            self._is_ahead = False
            self._num_settled = len(self._window)
            self._shown = self._decode(self._window)
        self._window.append(token)
        self._decoded = self._decode(self._window)
        if not self._decoded.startswith(self._shown):
            self._restart()
        end = len(self._decoded) - _count_broken_end(self._decoded)
        added = self._decoded[len(self._shown) : end]
        self._shown += added
        if end == len(self._decoded):
            self._num_settled = len(self._window)
        if len(self._window) > _TRIM_AT:
            self._trim()
        return self._own(added)

    def _restart(self) -> None:
        """Leave the tokens behind whose text has changed after it was given out."""
        del self._window[: self._num_settled]
        self._num_settled = 0
        self._shown = ""
        self._decoded = self._decode(self._window)

    def _trim(self) -> None:
        """Shorten the window where the text after the cut stays the same.

        A cut inside a character, or inside a run of byte tokens, would change it; a
        character has at most four tokens.
        """
        num_pending = len(self._decoded) - len(self._shown)
        cut = len(self._window) - _KEEP
        for start in range(cut, cut - 4, -1):
            decoded = self._decode(self._window[start:])
            if len(decoded) > num_pending and self._decoded.endswith(decoded):
                self._cut(start, decoded, num_pending)
                return
        if len(self._window) > _TRIM_FORCED_AT:
            self._cut(cut, self._decode(self._window[cut:]), num_pending)

    def _cut(self, start: int, decoded: str, num_pending: int) -> None:
        del self._window[:start]
        self._num_settled = max(0, self._num_settled - start)
        self._decoded = decoded
        self._shown = decoded[: max(0, len(decoded) - num_pending)]

    def _own(self, added: str) -> str:
        """Take the prompt's broken character off the start of the output."""
        if not self._num_broken or not added:
            return added
        own = added.lstrip(REPLACEMENT)
        num_taken = min(self._num_broken, len(added) - len(own))
        self._num_broken = 0 if own else self._num_broken - num_taken
        return added[num_taken:]

    def _last_visible(self, token_ids: Sequence[int]) -> list[int]:
        found: list[int] = []
        for token in reversed(token_ids):
            if self._is_visible(token):
                found.append(token)
                if len(found) == _TRIM_AT:
                    break
        return found[::-1]

    def _is_visible(self, token: int) -> bool:
        return token in self._known and token not in self._hidden


def _decoder(
    tokenizer: Tokenizer, skip_special_tokens: bool, spaces_between: bool
) -> Callable[[list[int]], str]:
    """Return a function that decodes known ids; it runs at least once a token."""
    if tokenizer.backend is not None:
        decode = tokenizer.backend.decode
        return functools.partial(decode, skip_special_tokens=skip_special_tokens)
    return functools.partial(
        tokenizer.decode,
        skip_special_tokens=skip_special_tokens,
        spaces_between_special_tokens=spaces_between,
    )


def _count_broken_end(text: str) -> int:
    """Count the replacement characters at the end, up to an unfinished character's."""
    if not text.endswith(REPLACEMENT):
        return 0
    num_broken = len(text) - len(text.rstrip(REPLACEMENT))
    return min(num_broken, _MAX_HELD)
