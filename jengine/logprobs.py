"""What may be asked about tokens: which values, and of how many ids."""

from typing import Literal

LogprobsMode = Literal[
    "raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits"
]
"""Which values log-probabilities are: of the logits as the model gave them, or after
penalties, masks, temperature and filters; as logarithms, or the logits themselves."""

MOST_LISTED_IDS = 128  # of `logprob_token_ids`, as in vLLM
