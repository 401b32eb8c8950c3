"""From tokens to what users see: text, stop strings, log-probabilities.

The only place that knows both a request's tokens and its text. It never touches
the scheduler: it returns the requests that a stop string ended, and the engine
passes that on.

What a user asks for is a group of completions, one or `n`; each is a request of its
own to the scheduler.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from jengine.core.events import TokenEvent
from jengine.core.request import Request
from jengine.outputs import CompletionOutput, RequestOutput
from jengine.request_text import RequestText
from jengine.sampling_params import RequestOutputKind, SamplingParams
from jengine.text.tokenizer import Tokenizer


class ProcessedStep(NamedTuple):
    """What the output side made of a step.

    Attributes:
      outputs: for users, in the order of the events.
      stopped: requests that a stop string ended, with that string.
    """

    outputs: list[RequestOutput]
    stopped: list[tuple[str, str]]


@dataclasses.dataclass(slots=True, eq=False)
class _Group:
    """The completions of one prompt.

    Attributes:
      group_id: the id that the user gave.
      prompt: the prompt's text, None if only its ids were given.
      kind: when outputs are wanted.
      interval: tokens between two outputs of a completion.
      members: in the order of their index.
    """

    group_id: str
    prompt: str | None
    kind: RequestOutputKind
    interval: int
    members: list[RequestText]

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will come of any member."""
        return all(member.is_finished for member in self.members)


class _Member(NamedTuple):
    state: RequestText
    group: _Group
    number: int


class OutputProcessor:
    """The visible side of all live requests."""

    def __init__(
        self, tokenizer: Tokenizer | None, *, stream_interval: int = 1
    ) -> None:
        """Make a processor without requests.

        Args:
          tokenizer: turns ids into text; None leaves all text empty.
          stream_interval: least number of tokens between two outputs of a completion,
            its first and last ones aside.
        """
        self._tokenizer = tokenizer
        self._stream_interval = stream_interval
        self._groups: dict[str, _Group] = {}
        self._live: dict[str, _Member] = {}  # by the scheduler's request ids
        self._at_end: set[Request] = set()  # those whose text is made then
        self._offered: list[_Member] = []

    def add(
        self,
        group_id: str,
        requests: Sequence[Request],
        prompt: str | None,
        params: SamplingParams,
    ) -> None:
        """Follow the requests of a group from now on."""
        members = [
            RequestText(request, params, self._tokenizer) for request in requests
        ]
        interval = max(self._stream_interval, params.stream_interval or 1)
        group = _Group(group_id, prompt, params.output_kind, interval, members)
        self._groups[group_id] = group
        self._follow(group)

    def has(self, group_id: str) -> bool:
        """Whether something of this group, or member of one, is still to come."""
        group, member = self._groups.get(group_id), self._live.get(group_id)
        if group is not None:
            return not group.is_finished
        return member is not None and not member.state.is_finished

    def request_ids(self, group_id: str) -> list[str]:
        """The scheduler's ids of a group; none if it is unknown."""
        group = self._groups.get(group_id)
        return [] if group is None else [one.request_id for one in group.members]

    def discard(self, group_id: str) -> None:
        """Forget a group; unknown ids are ignored."""
        for request_id in self.request_ids(group_id):
            self._unfollow(request_id)
        self._groups.pop(group_id, None)

    def process(self, events: Iterable[TokenEvent]) -> ProcessedStep:
        """Take in a step's events."""
        outputs: list[RequestOutput] = []
        stopped: list[tuple[str, str]] = []
        at_end = self._at_end
        for event in events:
            request = event.request
            # Most rows of most steps of an offline run need no more than this.
            if request in at_end and request.finish_reason is None:
                continue
            member = self._live.get(request.request_id)
            if member is None or member.state.request is not request:
                continue
            state = member.state
            if event.prompt_logprobs is not None:
                state.take_prompt(event.prompt_logprobs)
                if not event.token_ids and not request.is_finished:
                    continue  # the prompt is not through yet
            state.take(event.logprobs)
            if state.stop_string is not None and not request.is_finished:
                stopped.append((request.request_id, state.stop_string))
            self._emit(member, outputs)
        return ProcessedStep(outputs, stopped)

    def last_output(self, group_id: str) -> RequestOutput | None:
        """What a group that is aborted leaves, as its end; None if it had ended."""
        group = self._groups.get(group_id)
        if group is None:
            return None
        delta = group.kind is RequestOutputKind.DELTA
        for state in group.members:
            state.conclude()
        left = [
            state.completion(number, delta=delta)
            for number, state in enumerate(group.members)
            if not (delta and state.has_ended)
        ]
        ends = [
            dataclasses.replace(one, finish_reason=one.finish_reason or "abort")
            for one in left
        ]
        return dataclasses.replace(_output(group, ends), finished=True)

    def commit(self) -> None:
        """Note that the last outputs were delivered; forget what has ended.

        Until then `restore` takes them back, so that what breaks off between two
        calls of this loses no output and gives none twice.
        """
        for member in self._offered:
            state, group = member.state, member.group
            state.sent = state.offered
            if self._groups.get(group.group_id) is group:
                if group.is_finished:
                    self.discard(group.group_id)
                elif state.is_finished:
                    state.has_ended = True  # its siblings go on
                    self._unfollow(state.request_id)
        self._offered = []

    def roll_back(self) -> list[Request]:
        """Take back what was not delivered.

        Returns:
          All requests whose end has not been delivered, their tokens those that
          everything is known about.
        """
        self._offered = []
        # What broke off may have been a change of these.
        self._live, self._at_end = {}, set()
        for group in self._groups.values():
            self._follow(group)
        for member in self._live.values():
            member.state.forget_unexplained()
        return [member.state.request for member in self._live.values()]

    def restore(self) -> ProcessedStep:
        """Bring every request's text in line with its known tokens.

        Returns:
          The last outputs of those that this ends.
        """
        outputs: list[RequestOutput] = []
        stopped: list[tuple[str, str]] = []
        for member in self._live.values():
            member.state.restore()
        for member in self._live.values():
            state = member.state
            if state.stop_string is not None and not state.request.is_finished:
                stopped.append((state.request_id, state.stop_string))
            if state.is_finished:
                self._emit(member, outputs)
        return ProcessedStep(outputs, stopped)

    def _follow(self, group: _Group) -> None:
        for index, state in enumerate(group.members):
            if not state.has_ended:
                self._live[state.request_id] = _Member(state, group, index)
                if state.waits_for_end:
                    self._at_end.add(state.request)

    def _unfollow(self, request_id: str) -> None:
        member = self._live.pop(request_id, None)
        if member is not None:
            self._at_end.discard(member.state.request)

    def _emit(self, member: _Member, outputs: list[RequestOutput]) -> None:
        """Add an output if one is wanted now: of one completion, or all at the end."""
        state, group, number = member
        unsent = state.num_tokens - state.sent[0]
        if state.sent[0] and unsent < group.interval and not state.is_finished:
            return
        self._offered.append(member)
        if group.kind is RequestOutputKind.FINAL_ONLY:
            if group.is_finished:
                done = [
                    one.completion(i, delta=False)
                    for i, one in enumerate(group.members)
                ]
                outputs.append(_output(group, done))
            return
        is_delta = group.kind is RequestOutputKind.DELTA
        outputs.append(_output(group, [state.completion(number, delta=is_delta)]))


def _output(group: _Group, completions: list[CompletionOutput]) -> RequestOutput:
    first = group.members[0].request
    delta = group.kind is RequestOutputKind.DELTA
    return RequestOutput(
        request_id=group.group_id,
        prompt=group.prompt,
        prompt_token_ids=first.token_ids[: first.num_prompt_tokens],
        outputs=completions,
        finished=group.is_finished,
        prompt_logprobs=group.members[0].reported_prompt(delta=delta),
        num_cached_tokens=first.num_cached_tokens,
        metrics=first.times,
    )
