"""What the scheduler tells the engine after each step."""

from typing import NamedTuple, Protocol, runtime_checkable

from jengine.core.plan import PromptLogprobs, TokenLogprobs
from jengine.core.request import Request


class TokenEvent(NamedTuple):
    """A request's news from one step: new tokens, the end, or both.

    Attributes:
      request: whose news it is.
      token_ids: the ids just learnt, already appended to the request.
      logprobs: what was asked about them.
      prompt_logprobs: what was asked about tokens of the prompt; such news may come
        without new tokens.
    """

    request: Request
    token_ids: tuple[int, ...]
    logprobs: TokenLogprobs | None
    prompt_logprobs: PromptLogprobs | None = None


@runtime_checkable
class RequestObserver(Protocol):
    """Is told when requests get a seat, lose it, and end."""

    def admitted(self, request: Request) -> None:
        """Take note that a request has a seat, for the first time or again."""
        ...

    def preempted(self, request: Request) -> None:
        """Take note that a request has lost its seat; it may have a token in flight."""
        ...

    def ended(self, request: Request) -> None:
        """Take note that a request has ended; a recovery may end it once more."""
        ...
