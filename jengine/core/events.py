"""What the scheduler tells the engine after each step."""

from typing import NamedTuple

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
