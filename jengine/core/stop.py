"""When a request ends, decided from ids and lengths alone.

Stop strings need text, which the core never sees: the output side finds them
and tells the scheduler to finish the request.
"""

from jengine.core.request import FinishReason, Request


def check_stop(request: Request) -> tuple[FinishReason, int | None] | None:
    """Say whether the request's last token ends it.

    A stop wins over the length limit when one token meets both. Before
    `min_tokens` outputs no stop id counts, whatever was drawn; the length limit
    always does.

    Returns:
      The reason and, for a stop id other than the main EOS, that id; None when
      the request goes on.
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
    return None
