"""Printing of answers while they grow, and of the figures of a run.

Answers appear in the order of their prompts although they grow all at once: the first
one that is not finished is written through, the ones behind it wait.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast, runtime_checkable

from jengine.outputs import CompletionOutput, Logprob, RequestOutput

_LONGEST_TITLE = 60  # characters of a prompt


@runtime_checkable
class TextStream(Protocol):
    """Where text can be written, as to `sys.stdout`."""

    def write(self, text: str, /) -> object:
        """Take some text."""
        ...

    def flush(self) -> object:
        """Show what was taken."""
        ...


class AnswerPrinter:
    """Writes deltas of several answers as blocks, in the order of the prompts."""

    def __init__(self, titles: Sequence[str], stream: TextStream, n: int = 1) -> None:
        """Start with the first answer; a lone one gets no title.

        Args:
          titles: of the prompts.
          stream: where the text goes.
          n: answers to each prompt, which follow each other.
        """
        count = len(titles) * n
        self._titles = [] if count == 1 else [t for t in titles for _ in range(n)]
        self._stream = stream
        self._n = n
        self._waiting: list[list[str]] = [[] for _ in range(count)]
        self._endings: list[str | None] = [None] * count
        self._current = 0
        self._write_title()

    def add(self, index: int, text: str) -> None:
        """Take new text of one answer."""
        if index == self._current:
            self._write(text)
        else:
            self._waiting[index].append(text)

    def finish(self, index: int, ending: str = "") -> None:
        """Take the end of one answer, and lines to print below it."""
        self._endings[index] = ending
        while self._current < len(self._endings) and self._is_over(self._current):
            self._write(f"\n{self._endings[self._current]}")
            self._current += 1
            self._write_title()

    def _is_over(self, index: int) -> bool:
        return self._endings[index] is not None

    def _write_title(self) -> None:
        if self._current == len(self._endings):
            return
        if self._titles:
            gap = "\n" if self._current else ""
            prompt, answer = divmod(self._current, self._n)
            number = f"prompt {prompt + 1} of {len(self._titles) // self._n}"
            if self._n > 1:
                number += f", answer {answer + 1} of {self._n}"
            title = _shorten(self._titles[self._current])
            self._write(f"{gap}--- {number}: {title}\n")
        self._write("".join(self._waiting[self._current]))

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over the requests of a run.

    Attributes:
      num_requests: requests that finished.
      num_prompt_tokens: tokens of their prompts.
      num_cached_tokens: those of them that came from the prefix cache.
      num_output_tokens: tokens produced.
    """

    num_requests: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_output_tokens: int = 0

    def plus(self, output: RequestOutput) -> "Totals":
        """Return the sums after one more output; deltas add up."""
        produced = sum(len(c.token_ids) for c in output.outputs)
        ended = output.finished
        return Totals(
            num_requests=self.num_requests + ended,
            num_prompt_tokens=self.num_prompt_tokens
            + (len(output.prompt_token_ids) if ended else 0),
            num_cached_tokens=self.num_cached_tokens
            + ((output.num_cached_tokens or 0) if ended else 0),
            num_output_tokens=self.num_output_tokens + produced,
        )


def format_run(totals: Totals, seconds: float, stats: object) -> str:
    """Return the figures of a run as lines of text.

    >>> totals = Totals(num_requests=1, num_output_tokens=8)
    >>> print(format_run(totals, 2.0, None), end="")
    1 request, 8 tokens in 2.00 s: 4.0 tokens/s
    prompt tokens 0, of them from the prefix cache 0
    """
    plural = "" if totals.num_requests == 1 else "s"
    rate = totals.num_output_tokens / seconds if seconds > 0 else 0.0
    lines = [
        f"{totals.num_requests} request{plural}, {totals.num_output_tokens} tokens"
        f" in {seconds:.2f} s: {rate:.1f} tokens/s",
        f"prompt tokens {totals.num_prompt_tokens}, of them from the prefix cache"
        f" {totals.num_cached_tokens}",
    ]
    figures = [f"{name} {value}" for name, value in _flatten(stats).items()]
    if figures:
        lines.append(", ".join(figures))
    return "".join(f"{line}\n" for line in lines)


def format_logprobs(completion: CompletionOutput) -> str:
    """Return a line for each new token: its logprob, then those of the best."""
    if completion.logprobs is None:
        return ""
    pairs = zip(completion.token_ids, completion.logprobs, strict=True)
    lines = [_position(token, entry or {}) for token, entry in pairs]
    return "".join(f"  {line}\n" for line in lines)


def format_prompt_logprobs(output: RequestOutput) -> str:
    """Return the same for the tokens of the prompt, the first of which has none."""
    if output.prompt_logprobs is None:
        return ""
    pairs = zip(output.prompt_token_ids, output.prompt_logprobs, strict=True)
    lines = [_position(token, entry) for token, entry in pairs if entry is not None]
    return "".join(f"  prompt {line}\n" for line in lines)


def _position(token_id: int, entry: Mapping[int, Logprob]) -> str:
    others = (f" | {_entry(i, e)}" for i, e in entry.items() if i != token_id)
    return _entry(token_id, entry[token_id]) + "".join(others)


def _entry(token_id: int, logprob: Logprob) -> str:
    text = "" if logprob.decoded_token is None else f" {logprob.decoded_token!r}"
    return f"{token_id}{text} {logprob.logprob:.3f} (#{logprob.rank})"


def _flatten(stats: object) -> Mapping[str, object]:
    """List the figures of a record, and of the records in it."""
    if dataclasses.is_dataclass(stats):
        pairs = {f.name: getattr(stats, f.name) for f in dataclasses.fields(stats)}
    elif hasattr(stats, "_asdict"):  # a NamedTuple
        pairs = cast("Any", stats)._asdict()
    else:
        return {}
    flat: dict[str, object] = {}
    for name, value in pairs.items():
        flat |= _flatten(value) or {name: value}
    return flat


def _shorten(text: str) -> str:
    line = repr(text)
    return line if len(line) <= _LONGEST_TITLE else f"{line[:_LONGEST_TITLE]}...'"
