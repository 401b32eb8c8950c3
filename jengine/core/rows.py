"""Making one row of a plan, and counting its tokens as computed."""

from typing import Any

from jengine.core.plan import SamplingOptions, ScheduledRequest
from jengine.core.request import Request

# Calling a named tuple's own constructor costs three times this, and 256 rows
# are made in each step.
_new_tuple: Any = tuple.__new__  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


def schedule_row(
    request: Request,
    count: int,
    new_block_ids: tuple[int, ...],
    step: int,
    options: SamplingOptions | None,
) -> ScheduledRequest:
    """Schedule the next `count` tokens of a request that holds a seat.

    Args:
      request: counts the tokens as computed, and one more as expected if the row
        samples.
      count: tokens to run, at least 1.
      new_block_ids: what the row adds to the block table.
      step: number of the step.
      options: the request's own on admission, when the runner hears of it for the
        first time on this seat; else None.
    """
    start = request.num_computed_tokens
    end = start + count
    known = request.token_ids
    carries = start >= len(known)
    samples = end == request.num_expected_tokens
    request.num_computed_tokens = end
    if samples:
        request.num_expected_tokens += 1
        request.in_flight.append(step)
    if carries:
        token_ids: tuple[int, ...] = ()
    else:
        token_ids = (known[start],) if count == 1 else tuple(known[start:end])
    return _new_tuple(
        ScheduledRequest,
        (
            request.request_id,
            request.seat,
            start,
            token_ids,
            carries,
            new_block_ids,
            samples,
            options,
            tuple(known) if options is not None and options.needs_history else (),
        ),
    )
