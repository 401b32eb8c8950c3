"""End a request's text at the first stop string.

Pure text: which tokens made it, and what happens to a request that stopped, is the
caller's affair. The prompt never takes part, because it is never pushed.
"""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class StopMatch:
    """A stop string found in a piece of text.

    Attributes:
      stop: the string.
      end: length of the piece up to and including its last character.
    """

    stop: str
    end: int


class StopStrings:
    """The text of one request, cut at its first stop string.

    Push the text of each token as it comes; what comes back is safe to show: it is
    never taken back, and holds no part of a stop string. Text that could become one is
    kept until the next push decides, or `finish` gives it out. With `include_in_output`
    the stop string is part of the text, so that nothing is kept.

    The match that is complete first wins; among those completed by the same character,
    the one that comes first in `stop`. Push one token at a time if the token that
    completed it matters. Work per push is proportional to the text pushed, not to the
    length of the text or of the stop strings.

    Raises:
      ValueError: for an empty stop string, which every text contains.
    """

    def __init__(self, stop: Sequence[str], *, include_in_output: bool = False) -> None:
        if "" in stop:
            raise ValueError("a stop string must not be empty")
        self._matchers = [_Matcher(string) for string in stop]
        self._include = include_in_output
        self._held = ""
        self._matched: str | None = None

    @property
    def matched(self) -> str | None:
        """The stop string that ended the text, None as long as none did."""
        return self._matched

    def push(self, added: str, *, may_match: bool = True) -> str:
        """Take more text and return what can be shown now.

        Args:
          added: the text of the next token or tokens.
          may_match: False for text that no match may touch, because fewer than
            `min_tokens` tokens came before it; a match may begin after it.

        Returns:
          More of the request's text; "" after a match.
        """
        if self._matched is not None:
            return ""
        if not may_match:
            return self._release(added)
        match = self._advance(added)
        if match is not None:
            return self._end_at(match, added)
        text = self._held + added
        num_held = 0 if self._include else self._longest_start()
        self._held = text[len(text) - num_held :]
        return text[: len(text) - num_held]

    def finish(self) -> str:
        """Return the text kept back; no more is coming."""
        return self._release("")

    def _release(self, added: str) -> str:
        for matcher in self._matchers:
            matcher.length = 0
        text, self._held = self._held + added, ""
        return text

    def _advance(self, added: str) -> StopMatch | None:
        ends = ((matcher.string, matcher.advance(added)) for matcher in self._matchers)
        matches = [StopMatch(stop, end) for stop, end in ends if end is not None]
        return min(matches, key=lambda match: match.end, default=None)

    def _longest_start(self) -> int:
        return max((matcher.length for matcher in self._matchers), default=0)

    def _end_at(self, match: StopMatch, added: str) -> str:
        self._matched = match.stop
        text, self._held = self._held + added[: match.end], ""
        return text if self._include else text[: len(text) - len(match.stop)]


class _Matcher:
    """How much of one stop string the text ends with.

    Attributes:
      string: the stop string.
      length: of its longest beginning that the text ends with.

    Source: Knuth, Morris and Pratt 1977.
    """

    def __init__(self, string: str) -> None:
        self.string = string
        self.length = 0
        # For each beginning, the length of the longest shorter one that it ends with;
        # filled as far as matching gets, so that a long stop string costs nothing.
        self._shorter = [0, 0]

    def advance(self, added: str) -> int | None:
        """Take more text; return where in it the string is complete, None if not."""
        position = 0
        while position < len(added):
            if self.length == 0:
                position = added.find(self.string[0], position)
                if position < 0:
                    return None
            self.length = self._extend(self.length, added[position])
            position += 1
            if self.length == len(self.string):
                return position
        return None

    def _extend(self, length: int, character: str) -> int:
        """Return the length of the beginning that matches with one more character."""
        while length and self.string[length] != character:
            length = self._shorter_start(length)
        return length + (self.string[length] == character)

    def _shorter_start(self, length: int) -> int:
        while len(self._shorter) <= length:
            known = len(self._shorter) - 1
            character = self.string[known]
            self._shorter.append(self._extend(self._shorter[known], character))
        return self._shorter[length]
