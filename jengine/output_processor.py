"""From tokens to what users see: text, stop strings, log-probabilities.

The only place that knows both a request's tokens and its text. It never touches
the scheduler: it returns the requests that a stop string ended, and the engine
passes that on.
"""

from collections.abc import Iterable
from typing import NamedTuple

from jengine.core.events import TokenEvent
from jengine.core.plan import TokenLogprobs
from jengine.core.request import FinishReason, Request
from jengine.outputs import CompletionOutput, Logprob, RequestOutput
from jengine.sampling_params import RequestOutputKind, SamplingParams
from jengine.text.detokenizer import IncrementalDetokenizer
from jengine.text.stop import StopStrings
from jengine.text.tokenizer import Tokenizer


class ProcessedStep(NamedTuple):
    """What the output side made of a step.

    Attributes:
      outputs: for users, in the order of the events.
      stopped: requests that a stop string ended, with that string.
    """

    outputs: list[RequestOutput]
    stopped: list[tuple[str, str]]


class RequestText:
    """The visible side of one request, a function of its known tokens.

    Attributes:
      text: what may be shown.
      num_tokens: output tokens taken in.
      logprobs: for each of them, what was asked for.
      cumulative_logprob: sum of their log-probabilities.
      stop_string: the stop string that ended it.
      sent: tokens and characters that have been delivered.
      offered: the same, once the step's outputs are delivered.
    """

    def __init__(
        self,
        request: Request,
        prompt: str | None,
        params: SamplingParams,
        tokenizer: Tokenizer | None,
    ) -> None:
        """Start without output."""
        self.request = request
        self.prompt = prompt
        self.params = params
        self._tokenizer = tokenizer if params.detokenize else None
        self.logprobs: list[dict[int, Logprob]] = []
        self.cumulative_logprob = 0.0
        self.sent: tuple[int, int] = (0, 0)
        self.offered: tuple[int, int] = (0, 0)
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
        """Whether nothing more will come."""
        return self.stop_string is not None or self.request.is_finished

    def take(self, logprobs: TokenLogprobs | None) -> None:
        """Take in the request's known tokens that are new."""
        request = self.request
        known = request.token_ids
        while self.num_tokens < request.num_output_tokens and not self.stop_string:
            index = request.num_prompt_tokens + self.num_tokens
            is_last = index == len(known) - 1
            ends = is_last and request.finish_reason is FinishReason.STOP
            self.num_tokens += 1
            if logprobs is not None and is_last:
                self._take_logprobs(logprobs)
            if not ends or self.params.include_stop_str_in_output:
                self._take_text(known[index])
        if request.is_finished and self.stop_string is None:
            self._parts.append(self._stops.finish())

    def forget_unexplained(self) -> None:
        """Drop known tokens whose log-probabilities were lost with a broken step.

        A draw depends on its position only, so the same ones will be drawn again.
        """
        if self.params.logprobs is not None:
            start = self.request.num_prompt_tokens
            del self.request.token_ids[start + len(self.logprobs) :]

    def restore(self) -> None:
        """Start over from the known tokens, after a step that broke off anywhere."""
        if self.params.logprobs is not None:
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

    def _take_text(self, token_id: int) -> None:
        if self._detokenizer is None:
            return
        added = self._detokenizer.append((token_id,))
        may_match = self.num_tokens > self.params.min_tokens
        self._parts.append(self._stops.push(added, may_match=may_match))
        self.stop_string = self._stops.matched

    def _take_logprobs(self, found: TokenLogprobs) -> None:
        entry = {
            token_id: Logprob(logprob, rank, self._piece(token_id))
            for token_id, logprob, rank in zip(
                found.token_ids, found.logprobs, found.ranks, strict=True
            )
        }
        self.logprobs.append(entry)
        self.cumulative_logprob += found.sampled_logprob

    def _piece(self, token_id: int) -> str | None:
        return None if self._tokenizer is None else self._tokenizer.convert(token_id)


class OutputProcessor:
    """The visible side of all live requests."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        """Make a processor without requests.

        Args:
          tokenizer: turns ids into text; None leaves all text empty.
        """
        self._tokenizer = tokenizer
        self._live: dict[str, RequestText] = {}
        self._offered: list[RequestText] = []

    def add(self, request: Request, prompt: str | None, params: SamplingParams) -> None:
        """Follow a request from now on."""
        self._live[request.request_id] = RequestText(
            request, prompt, params, self._tokenizer
        )

    def discard(self, request_id: str) -> None:
        """Forget a request; unknown ids are ignored."""
        self._live.pop(request_id, None)

    def process(self, events: Iterable[TokenEvent]) -> ProcessedStep:
        """Take in a step's events."""
        outputs: list[RequestOutput] = []
        stopped: list[tuple[str, str]] = []
        for event in events:
            state = self._live.get(event.request.request_id)
            if state is None or state.request is not event.request:
                continue
            state.take(event.logprobs)
            if state.stop_string is not None and not event.request.is_finished:
                stopped.append((event.request.request_id, state.stop_string))
            self._emit(state, outputs)
        return ProcessedStep(outputs, stopped)

    def commit(self) -> None:
        """Note that the last outputs were delivered; forget requests that ended.

        Until then `restore` takes them back, so that what breaks off between two
        calls of this loses no output and gives none twice.
        """
        for state in self._offered:
            state.sent = state.offered
            if state.is_finished and self._live.get(state.request_id) is state:
                del self._live[state.request_id]
        self._offered = []

    def roll_back(self) -> list[Request]:
        """Take back what was not delivered.

        Returns:
          All requests whose end has not been delivered, their tokens those that
          everything is known about.
        """
        self._offered = []
        for state in self._live.values():
            state.forget_unexplained()
        return [state.request for state in self._live.values()]

    def restore(self) -> ProcessedStep:
        """Bring every request's text in line with its known tokens.

        Returns:
          The last outputs of those that this ends.
        """
        outputs: list[RequestOutput] = []
        stopped: list[tuple[str, str]] = []
        for state in self._live.values():
            state.restore()
            if state.stop_string is not None and not state.request.is_finished:
                stopped.append((state.request_id, state.stop_string))
            if state.is_finished:
                self._emit(state, outputs)
        return ProcessedStep(outputs, stopped)

    def _emit(self, state: RequestText, outputs: list[RequestOutput]) -> None:
        """Add a request's output if its kind wants one now."""
        kind = state.params.output_kind
        self._offered.append(state)
        if state.is_finished or kind is not RequestOutputKind.FINAL_ONLY:
            outputs.append(_output(state, delta=kind is RequestOutputKind.DELTA))


def _output(state: RequestText, *, delta: bool) -> RequestOutput:
    """Make an output of everything so far, or of what was not sent yet."""
    first_token, first_char = state.sent if delta else (0, 0)
    text, token_ids = state.text, state.output_ids()
    state.offered = (len(token_ids), len(text))
    asked = state.params.logprobs is not None
    completion = CompletionOutput(
        index=0,
        text=text[first_char:],
        token_ids=token_ids[first_token:],
        cumulative_logprob=state.cumulative_logprob if asked else None,
        logprobs=state.logprobs[first_token : len(token_ids)] if asked else None,
        finish_reason=state.finish_reason,
        stop_reason=state.stop_reason,
    )
    request = state.request
    return RequestOutput(
        request_id=request.request_id,
        prompt=state.prompt,
        prompt_token_ids=request.token_ids[: request.num_prompt_tokens],
        outputs=[completion],
        finished=state.is_finished,
        num_cached_tokens=request.num_cached_tokens,
    )
