"""The flags that say when the requests of a load are sent, and how many at a time."""

import argparse

from jengine.bench.arrivals import arrival_times, ramp_up_times
from jengine.bench.bench_request import BenchRequest
from jengine.cli_bench.flag_types import count, not_negative
from jengine.errors import InvalidValueError


def add_load_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags; names and defaults are vLLM's."""
    group = parser.add_argument_group("load")
    group.add_argument(
        "--request-rate",
        type=float,
        default=float("inf"),
        metavar="X",
        help="requests per second; without it all at once, or as a trace has them",
    )
    group.add_argument(
        "--burstiness",
        type=float,
        default=1.0,
        metavar="X",
        help="shape of the Gamma distribution of the gaps; 1 is a Poisson process",
    )
    group.add_argument(
        "--max-concurrency", type=count, metavar="N", help="of requests at a time"
    )
    group.add_argument("--ramp-up-strategy", choices=("linear", "exponential"))
    group.add_argument("--ramp-up-start-rps", type=float, metavar="X")
    group.add_argument("--ramp-up-end-rps", type=float, metavar="X")
    group.add_argument(
        "--num-warmups",
        type=not_negative,
        default=0,
        metavar="N",
        help="requests before it",
    )
    group.add_argument(
        "--ready-check-timeout-sec",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="longest wait for a server that does not answer yet",
    )


def check_schedule(flags: argparse.Namespace, *, is_recorded: bool) -> None:
    """Check the flags before anything is loaded.

    Args:
      flags: see `add_load_flags`.
      is_recorded: whether the requests are those of a trace.

    Raises:
      InvalidValueError: a flag is missing, would be ignored, or is out of its range.
    """
    wait_s = flags.ready_check_timeout_sec
    if not wait_s >= 0:  # not a number is none
        raise InvalidValueError("ready_check_timeout_sec", wait_s, "at least 0")
    arrival = 0.0 if is_recorded else None
    schedule(flags, [BenchRequest(prompt_tokens=1, output_tokens=1, arrival_s=arrival)])


def schedule(flags: argparse.Namespace, requests: list[BenchRequest]) -> list[float]:
    """Return when each request is due: as recorded, or as the flags say.

    Raises:
      InvalidValueError: a flag is missing, would be ignored, or is out of its range.
    """
    recorded = [r.arrival_s for r in requests if r.arrival_s is not None]
    is_recorded = len(recorded) == len(requests)
    _check_ramp_up(flags, is_recorded)
    if is_recorded and flags.request_rate == float("inf"):
        return recorded
    common = {"burstiness": flags.burstiness, "seed": flags.seed}
    if flags.ramp_up_strategy is None:
        return arrival_times(len(requests), rate=flags.request_rate, **common)
    return ramp_up_times(
        len(requests),
        strategy=flags.ramp_up_strategy,
        start_rate=flags.ramp_up_start_rps,
        end_rate=flags.ramp_up_end_rps,
        **common,
    )


def _check_ramp_up(flags: argparse.Namespace, is_recorded: bool) -> None:
    """Refuse half a ramp-up, and one beside other times.

    Raises:
      InvalidValueError: it is one.
    """
    strategy = flags.ramp_up_strategy
    rates = (flags.ramp_up_start_rps, flags.ramp_up_end_rps)
    if strategy is None and rates == (None, None):
        return
    if strategy is None:
        raise InvalidValueError("ramp_up_strategy", None, "one, for a ramp-up")
    if None in rates:
        raise InvalidValueError("ramp_up_start_rps", None, "both rates, for a ramp-up")
    if is_recorded:
        raise InvalidValueError("ramp_up_strategy", strategy, "none, for a trace")
    if flags.request_rate != float("inf"):
        raise InvalidValueError("request_rate", flags.request_rate, "none, or no ramp")
    for name in ("ramp_up_start_rps", "ramp_up_end_rps"):
        rate = getattr(flags, name)
        if not 0 < rate < float("inf"):
            raise InvalidValueError(name, rate, "a finite number above 0")
