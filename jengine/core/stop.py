"""When a request ends, decided from ids and lengths alone.

Stop strings need text, which the core never sees: the output side finds them
and tells the scheduler to finish the request.
"""

from collections.abc import Sequence

from jengine.core.request import FinishReason, Repetition, Request


def check_stop(request: Request) -> tuple[FinishReason, int | str | None] | None:
    """Say whether the request's last token ends it.

    A stop wins over the length limit when one token meets both. Before
    `min_tokens` outputs no stop id counts, whatever was drawn, and no repetition;
    the length limit always does.

    Returns:
      The reason and, for a stop id other than the main EOS, that id; for a
      repetition a word that says so; None when the request goes on.
    """
    num_tokens = len(request.token_ids)
    if num_tokens == request.num_prompt_tokens:
        return None
    if num_tokens > request.options.stops_from:
        token_id = request.token_ids[-1]
        if token_id == request.eos_token_id:
            return FinishReason.STOP, None
        if token_id in request.ending_ids:
            return FinishReason.STOP, token_id
    if num_tokens >= request.max_total_tokens:
        return FinishReason.LENGTH, None
    if num_tokens > request.options.stops_from and _repeats_itself(request):
        return FinishReason.REPETITION, "repetition_detected"
    return None


def _repeats_itself(request: Request) -> bool:
    rule = request.repetition
    if rule is None:
        return False
    # No more than the rule can look at: the cost may not grow with the output.
    start = len(request.token_ids) - rule.most_size * rule.times
    return repeats(request.token_ids[max(start, request.num_prompt_tokens) :], rule)


def repeats(output_ids: Sequence[int], rule: Repetition) -> bool:
    """Say whether an output ends in the same few tokens several times over.

    >>> repeats([7, 1, 2, 1, 2, 1, 2], Repetition(least_size=1, most_size=3, times=3))
    True
    """
    for size in range(rule.least_size, rule.most_size + 1):
        whole = size * rule.times
        if whole > len(output_ids):
            return False
        # Equal to itself one pattern later: every part of it is the same.
        end = output_ids[-whole:]
        if end[size:] == end[:-size]:
            return True
    return False
