"""What all engines are asked: random prompts of set lengths, equal for all of them."""

import dataclasses

import numpy as np

from jengine.errors import InvalidValueError


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Batches of random prompts, all asked at once, with outputs of one length.

    Attributes:
      batches: requests of each batch size that is measured.
      min_prompt_tokens: length of the shortest prompt.
      max_prompt_tokens: length of the longest prompt.
      output_tokens: new tokens of each request.
      vocab_size: ids are drawn below it.
      seed: other seeds draw other ids and lengths.
    """

    batches: tuple[int, ...] = (1, 8, 32, 64)
    min_prompt_tokens: int = 32
    max_prompt_tokens: int = 128
    output_tokens: int = 64
    vocab_size: int
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        if not self.batches or min(self.batches) < 1:
            raise InvalidValueError("batches", self.batches, "positive numbers")
        if not 1 <= self.min_prompt_tokens <= self.max_prompt_tokens:
            found = (self.min_prompt_tokens, self.max_prompt_tokens)
            raise InvalidValueError("prompt lengths", found, "1 <= least <= most")
        if self.output_tokens < 1:
            raise InvalidValueError("output_tokens", self.output_tokens, "at least 1")

    @property
    def max_model_len(self) -> int:
        """Tokens that the longest request may hold."""
        return self.max_prompt_tokens + self.output_tokens

    def prompt_lengths(self, batch: int) -> list[int]:
        """Return the lengths of a batch's prompts, the same in each of its rounds.

        They are spread evenly from least to most, in random order, so that small
        batches are no luck of the draw; a batch of one has the middle length.
        """
        low, high = self.min_prompt_tokens, self.max_prompt_tokens
        if batch == 1:
            return [(low + high) // 2]
        rng = np.random.default_rng((self.seed, batch))
        lengths = np.linspace(low, high, batch).round().astype(np.int64)
        return rng.permutation(lengths).tolist()

    def prompts(self, batch: int, round_number: int) -> list[list[int]]:
        """Return a round's prompts: new ids each time, so that no cache helps."""
        rng = np.random.default_rng((self.seed, batch, round_number + 1))
        return [
            rng.integers(0, self.vocab_size, length).tolist()
            for length in self.prompt_lengths(batch)
        ]
