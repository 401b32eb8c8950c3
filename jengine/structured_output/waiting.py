"""Requests whose grammar is being compiled; the scheduler does not know them yet."""

import concurrent.futures
from collections.abc import Iterable
from typing import NamedTuple

from jengine.core.request import Request, RequestStatus
from jengine.errors import SamplingParamsError, UnsupportedError
from jengine.sampling_params import SamplingParams
from jengine.structured_output.constraint import GrammarError
from jengine.structured_output.manager import Compiled, GrammarManager

_SHORT_COMPILE_S = 0.5  # a grammar that takes longer is compiled beside the loop
_IDLE_WAIT_S = 0.05  # an engine with nothing to run looks for compiled grammars


class WaitingGroup(NamedTuple):
    """The requests of one prompt, and the grammar that they wait for."""

    group_id: str
    requests: list[Request]
    params: SamplingParams
    grammar: "concurrent.futures.Future[Compiled]"


class WaitingForGrammar:
    """Groups by id, until their grammar is compiled."""

    def __init__(self, grammars: GrammarManager | None) -> None:
        """Hold nothing yet.

        Args:
          grammars: who compiles; None refuses every grammar.
        """
        self._grammars = grammars
        self._groups: dict[str, WaitingGroup] = {}

    @property
    def num_requests(self) -> int:
        """Requests that wait."""
        return sum(len(group.requests) for group in self._groups.values())

    def compile(
        self, params: SamplingParams
    ) -> "concurrent.futures.Future[Compiled] | None":
        """Start compiling a request's grammar, if it has one.

        Most grammars take milliseconds, so that a wrong one is refused at once; one
        that takes longer goes on beside the step loop.

        Raises:
          SamplingParamsError: it cannot be compiled.
          UnsupportedError: there is nobody to compile it.
        """
        asked = params.structured_outputs
        if asked is None:
            return None
        if self._grammars is None:
            raise UnsupportedError("structured outputs need a tokenizer")
        grammar = self._grammars.submit(asked)
        # One that takes long delays those behind it, and the step loop but once.
        is_behind = any(not group.grammar.done() for group in self._groups.values())
        wait_s = 0.0 if is_behind else _SHORT_COMPILE_S
        concurrent.futures.wait([grammar], timeout=wait_s)
        error = grammar.exception() if grammar.done() else None
        if isinstance(error, GrammarError):
            raise SamplingParamsError(
                f"structured_outputs.{asked.kind}",
                getattr(asked, asked.kind),
                f"what llguidance can compile ({error})",
            ) from error
        if error is not None:
            raise error
        return grammar

    def hold(self, group: WaitingGroup) -> None:
        """Let the requests of a group wait."""
        for request in group.requests:
            request.status = RequestStatus.WAITING_FOR_GRAMMAR
        self._groups[group.group_id] = group

    def discard(self, group_ids: Iterable[str]) -> list[Request]:
        """Forget groups and return their requests; unknown ids are ignored."""
        found = [self._groups.pop(group_id, None) for group_id in group_ids]
        return [one for group in found if group is not None for one in group.requests]

    def take_ready(self, *, is_idle: bool) -> list[WaitingGroup]:
        """Return the groups whose grammar is compiled, or cannot be.

        Args:
          is_idle: whether to wait a moment for one, since nothing else is to be done.
        """
        if not self._groups:
            return []
        if is_idle:
            grammars = [group.grammar for group in self._groups.values()]
            concurrent.futures.wait(
                grammars,
                timeout=_IDLE_WAIT_S,
                return_when=concurrent.futures.FIRST_COMPLETED,
            )
        ready = [group for group in self._groups.values() if group.grammar.done()]
        self.discard(group.group_id for group in ready)
        for group in ready:
            for request in group.requests:
                request.status = RequestStatus.WAITING
        return ready
