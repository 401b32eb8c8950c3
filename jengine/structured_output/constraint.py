"""What may be drawn next, as a mask over the vocabulary."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np


@runtime_checkable
class Constraint(Protocol):
    """The state of one request's constraint; it follows the tokens drawn."""

    def restrict(self, mask: np.ndarray) -> None:
        """Clear the bits of ids that may not come next.

        Args:
          mask: int32 words of one row; bit i of word w allows id 32 w + i.
        """
        ...

    def advance(self, token_id: int) -> bool:
        """Take in the next token; return whether nothing may follow it.

        Raises:
          ConstraintError: the token breaks the constraint.
        """
        ...

    def restart(self, token_ids: Sequence[int]) -> None:
        """Start over, with these tokens drawn."""
        ...


class ConstraintError(RuntimeError):
    """A token was drawn that its constraint does not allow."""


class GrammarError(ValueError):
    """A grammar, regular expression or schema cannot be compiled; says why."""


class BadWords:
    """Keeps words out of the output, each a sequence of ids.

    Only the id that would complete a word is forbidden, and only where the output ends
    with the ids before it; the prompt does not count.
    """

    def __init__(self, words: Sequence[Sequence[int]]) -> None:
        """Start with an empty output.

        Args:
          words: ids of each word, at least one.
        """
        self._words = [tuple(word) for word in words]
        longest = max((len(word) for word in self._words), default=1)
        self._longest_start = longest - 1
        self._last: list[int] = []

    def restrict(self, mask: np.ndarray) -> None:
        """Clear the last id of each word that the output has begun."""
        last = tuple(self._last)
        for *start, end in self._words:
            if not start or last[-len(start) :] == tuple(start):
                mask[end // 32] &= ~np.left_shift(np.int32(1), end % 32, dtype=np.int32)

    def advance(self, token_id: int) -> bool:
        """Remember as many ids as the longest word needs."""
        self.restart([*self._last, token_id])
        return False

    def restart(self, token_ids: Sequence[int]) -> None:
        """Remember the last ones of these."""
        self._last = list(token_ids)[max(0, len(token_ids) - self._longest_start) :]
