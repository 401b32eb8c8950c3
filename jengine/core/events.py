"""What the scheduler tells the engine after each step."""

from typing import NamedTuple

from jengine.core.plan import TokenLogprobs
from jengine.core.request import Request


class TokenEvent(NamedTuple):
    """A request's news from one step: new tokens, the end, or both.

    Attributes:
      request: whose news it is.
      token_ids: the ids just learnt, already appended to the request.
      logprobs: what was asked about them.
    """

    request: Request
    token_ids: tuple[int, ...]
    logprobs: TokenLogprobs | None
