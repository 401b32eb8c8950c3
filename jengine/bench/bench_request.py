"""One request of a benchmark, before it is sent to anybody."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BenchRequest:
    """What to ask.

    Attributes:
      token_ids: the prompt as ids; empty where only its text is known.
      text: the prompt as text; None where only its ids are known.
      prompt_tokens: length of the prompt.
      output_tokens: tokens to generate.
      arrival_s: seconds after the start at which a recorded request came; None where
        the benchmark chooses.
    """

    token_ids: tuple[int, ...] = ()
    text: str | None = None
    prompt_tokens: int
    output_tokens: int
    arrival_s: float | None = None
