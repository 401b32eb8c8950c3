"""The visible side of one request: its text and log-probabilities."""

from collections.abc import Sequence
from typing import Any

from jengine.core.plan import PromptLogprobs, TokenLogprobs
from jengine.core.request import FinishReason, Request
from jengine.outputs import CompletionOutput, FlatLogprobs, Logprob
from jengine.sampling_params import RequestOutputKind, SamplingParams
from jengine.text.detokenizer import IncrementalDetokenizer
from jengine.text.stop import StopStrings
from jengine.text.tokenizer import Tokenizer

_CONTEXT = 4  # tokens before one that its text may depend on


class RequestText:
    """What users see of one request, a function of its known tokens.

    Attributes:
      text: what may be shown.
      num_tokens: output tokens taken in.
      waits_for_end: whether nothing is taken in before the request ends, because
        nobody asks for it and it cannot end the request.
      logprobs: for each of them, what was asked for.
      prompt_logprobs: for each token of the prompt that has been reported on.
      cumulative_logprob: sum of their log-probabilities.
      stop_string: the stop string that ended it.
      sent: tokens and characters that have been delivered.
      offered: the same, once the step's outputs are delivered.
      has_ended: whether its last output has been delivered, or would have been if
        each completion were delivered by itself.
    """

    def __init__(
        self,
        request: Request,
        params: SamplingParams,
        tokenizer: Tokenizer | None,
    ) -> None:
        """Start without output."""
        self.request = request
        self.params = params
        self._tokenizer = tokenizer if params.detokenize else None
        self.logprobs: list[dict[int, Logprob]] = []
        self.prompt_logprobs: list[dict[int, Logprob] | None] = [None]
        self._reports = params.num_reported is not None
        # One completion reports on the prompt for all of them.
        self._reports_prompt = request.options.num_prompt_logprobs is not None
        is_asked = params.output_kind is not RequestOutputKind.FINAL_ONLY
        reports = self._reports or self._reports_prompt
        self.waits_for_end = not (is_asked or reports or params.stop)
        self.cumulative_logprob = 0.0
        self.sent: tuple[int, int] = (0, 0)
        self.offered: tuple[int, int] = (0, 0)
        self.has_ended = False
        self._start_text()

    def _start_text(self) -> None:
        self._parts: list[str] = []
        self.num_tokens = 0
        self.stop_string: str | None = None
        self._stops = StopStrings(
            self.params.stop,
            include_in_output=self.params.include_stop_str_in_output,
        )
        self._detokenizer: IncrementalDetokenizer | None = None
        if self._tokenizer is not None:
            prompt_ids = self.request.token_ids[: self.request.num_prompt_tokens]
            self._detokenizer = IncrementalDetokenizer(
                self._tokenizer,
                prompt_ids,
                skip_special_tokens=self.params.skip_special_tokens,
                spaces_between_special_tokens=(
                    self.params.spaces_between_special_tokens
                ),
            )

    @property
    def request_id(self) -> str:
        """Whose text it is."""
        return self.request.request_id

    @property
    def text(self) -> str:
        """All text that may be shown."""
        self._parts = ["".join(self._parts)]
        return self._parts[0]

    @property
    def finish_reason(self) -> str | None:
        """Why the request ended, as the user sees it."""
        if self.stop_string is not None:
            return FinishReason.STOP.value
        reason = self.request.finish_reason
        return None if reason is None else reason.value

    @property
    def stop_reason(self) -> int | str | None:
        """The stop string or stop id that ended the request."""
        return self.stop_string or self.request.stop_reason

    @property
    def is_finished(self) -> bool:
        """Whether everything has been taken in and nothing more will come."""
        has_all = self.num_tokens == self.request.num_output_tokens
        return self.stop_string is not None or (has_all and self.request.is_finished)

    def take(self, logprobs: TokenLogprobs | None) -> None:
        """Take in the request's known tokens that are new.

        Args:
          logprobs: of the last one.
        """
        request = self.request
        new = request.token_ids[request.num_prompt_tokens + self.num_tokens :]
        if self.params.stop:
            self._take_up_to_stop(new, logprobs)
        elif new:
            self.num_tokens += len(new)
            if logprobs is not None:
                self._take_logprobs(logprobs)
            if self._detokenizer is not None:
                shown = new[:-1] if self._hides_last_token() else new
                self._parts.append(self._detokenizer.append(shown))
        if request.is_finished and self.stop_string is None:
            self._parts.append(self._stops.finish())

    def conclude(self) -> None:
        """Show all that is known, since the request is given up."""
        if self.waits_for_end:
            self.take(None)
        if self.stop_string is None:
            self._parts.append(self._stops.finish())

    def take_prompt(self, found: PromptLogprobs) -> None:
        """Take in what is new about the prompt; a resumed request reports again."""
        new = len(self.prompt_logprobs) - found.start
        assert new >= 0, "a part of the prompt was not reported"
        places = range(len(self.prompt_logprobs), self.request.num_prompt_tokens)
        self.prompt_logprobs += map(self._entry, found.entries[new:], places)

    def has_prompt_logprobs(self) -> bool:
        """Whether all is known that was asked about the prompt."""
        num_prompt_tokens = self.request.num_prompt_tokens
        return self._reports_prompt and len(self.prompt_logprobs) == num_prompt_tokens

    def forget_unexplained(self) -> None:
        """Drop known tokens whose log-probabilities were lost with a broken step.

        A draw depends on its position only, so the same ones will be drawn again.
        """
        start = self.request.num_prompt_tokens
        if self._reports_prompt and not self.has_prompt_logprobs():
            self.logprobs = []
            del self.request.token_ids[start:]
        if self._reports:
            del self.request.token_ids[start + len(self.logprobs) :]

    def restore(self) -> None:
        """Start over from the known tokens, after a step that broke off anywhere."""
        if self._reports:
            # The sum may lag behind the list by the entry that was being added.
            start = self.request.num_prompt_tokens
            drawn = zip(self.logprobs, self.request.token_ids[start:], strict=True)
            self.cumulative_logprob = sum((e[t].logprob for e, t in drawn), 0.0)
        self._start_text()
        self.take(None)

    def output_ids(self) -> list[int]:
        """The output tokens taken in so far."""
        start = self.request.num_prompt_tokens
        return self.request.token_ids[start : start + self.num_tokens]

    def _hides_last_token(self) -> bool:
        """Whether the last known token ended the request and is no part of its text."""
        request = self.request
        return (
            request.finish_reason is FinishReason.STOP
            # Or a grammar ended it, with a token that belongs to the text.
            and request.token_ids[-1] in request.ending_ids
            and not self.params.include_stop_str_in_output
        )

    def _take_up_to_stop(
        self, new: Sequence[int], logprobs: TokenLogprobs | None
    ) -> None:
        """Take in tokens one by one: which of them completes a stop string counts."""
        for left, token_id in zip(range(len(new) - 1, -1, -1), new, strict=True):
            if self.stop_string is not None:
                return
            self.num_tokens += 1
            if not left and logprobs is not None:
                self._take_logprobs(logprobs)
            if left or not self._hides_last_token():
                self._take_text(token_id)

    def _take_text(self, token_id: int) -> None:
        if self._detokenizer is None:
            return
        added = self._detokenizer.append((token_id,))
        may_match = self.num_tokens > self.params.min_tokens
        self._parts.append(self._stops.push(added, may_match=may_match))
        self.stop_string = self._stops.matched

    def _take_logprobs(self, found: TokenLogprobs) -> None:
        self.logprobs.append(self._entry(found, len(self.request.token_ids) - 1))
        self.cumulative_logprob += found.sampled_logprob

    def _entry(self, found: TokenLogprobs, place: int) -> dict[int, Logprob]:
        """Make the entry of the token at a place, counted from the prompt's first."""
        before = self.request.token_ids[max(0, place - _CONTEXT) : place]
        return {
            token_id: Logprob(logprob, rank, self._piece(token_id, before))
            for token_id, logprob, rank in zip(
                found.token_ids, found.logprobs, found.ranks, strict=True
            )
        }

    def _piece(self, token_id: int, before: Sequence[int]) -> str | None:
        tokenizer = self._tokenizer
        return None if tokenizer is None else tokenizer.convert(token_id, before)

    def completion(self, index: int, *, delta: bool) -> CompletionOutput:
        """Make an output of everything so far, or of what was not sent yet."""
        first_token, first_char = self.sent if delta else (0, 0)
        text, token_ids = self.text, self.output_ids()
        self.offered = (len(token_ids), len(text))
        asked = self._reports
        logprobs = self.logprobs[first_token : len(token_ids)]
        return CompletionOutput(
            index=index,
            text=text[first_char:],
            token_ids=token_ids[first_token:],
            cumulative_logprob=self.cumulative_logprob if asked else None,
            logprobs=self._flattened(logprobs) if asked else None,
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
        )

    def reported_prompt(self, *, delta: bool) -> Any:
        """What was asked about the prompt, if all is known; a delta says it once."""
        if not self.has_prompt_logprobs() or (delta and self.sent != (0, 0)):
            return None
        return self._flattened(self.prompt_logprobs)

    def _flattened(self, listed: Sequence[dict[int, Logprob] | None]) -> Any:
        return FlatLogprobs(listed) if self.params.flat_logprobs else list(listed)
