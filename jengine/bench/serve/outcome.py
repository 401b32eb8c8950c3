"""What came of one request, as its user saw it."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One request that was sent.

    Attributes:
      prompt_tokens: as the server counted them, else as they were asked.
      output_tokens: as the server counted them, else pieces received.
      start_s: when it was sent, in seconds after the start of the load.
      ttft_s: from then to its first piece.
      itl_s: from piece to piece; a piece may hold several tokens.
      latency_s: from the sending to the last piece.
      text: what was generated.
      error: why it failed; None if it did not.
    """

    prompt_tokens: int
    output_tokens: int = 0
    start_s: float
    ttft_s: float = 0.0
    itl_s: tuple[float, ...] = ()
    latency_s: float = 0.0
    text: str = ""
    error: str | None = None
