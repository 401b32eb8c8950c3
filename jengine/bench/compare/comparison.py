"""Engines take turns on the same prompts; calls on a busy machine are repeated."""

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from typing import TypeVar

from jengine.bench.compare.backend_process import BackendError
from jengine.bench.compare.contender import Call, Contender, wait_for_quiet
from jengine.bench.compare.result import BackendResult, Sample, share_of_same_tokens
from jengine.bench.compare.workload import Workload

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How often and how long to try.

    Attributes:
      rounds: calls of each engine at each batch size.
      max_foreign_cpus: a call during which others kept more CPUs busy is repeated.
      max_repeats: of one call; then the one that was disturbed least counts.
      quiet_wait_s: longest wait for a quiet machine before a repetition.
      start_s: longest that an engine may take to start.
      call_s: longest that it may take for one call.
    """

    rounds: int = 5
    max_foreign_cpus: float = 0.1
    max_repeats: int = 3
    quiet_wait_s: float = 30.0
    start_s: float = 900.0
    call_s: float = 900.0


@dataclasses.dataclass(slots=True)
class _Tally:
    """What one engine did at one batch size."""

    samples: list[Sample] = dataclasses.field(default_factory=list)
    rejected: list[Sample] = dataclasses.field(default_factory=list)
    same_tokens: list[float] = dataclasses.field(default_factory=list)


def compare(
    contenders: Sequence[Contender],
    workload: Workload,
    patience: Patience,
    say: Callable[[str], None] = lambda _: None,
) -> list[BackendResult]:
    """Let engines take turns at each batch size.

    The order changes from round to round, so that nobody always follows the same
    other one. A first round, with prompts of the same lengths, warms up and does not
    count. An engine that fails is out; its results say why.

    Args:
      contenders: those that run, and those that failed to.
      workload: what they are asked.
      patience: how often and how long.
      say: takes a line about what is going on.

    Returns:
      For each batch size the results of all engines in their order.
    """
    results: list[BackendResult] = []
    for batch in workload.batches:
        tallies = [_Tally() for _ in contenders]
        for number in range(-1, patience.rounds):
            calls = _run_round(contenders, workload, patience, batch, number, tallies)
            if number >= 0:
                _note_same_tokens(calls, tallies)
            say(f"batch {batch}, {_describe(number, calls, contenders)}")
        results += [
            _result(one, workload, batch, tally, patience.max_foreign_cpus)
            for one, tally in zip(contenders, tallies, strict=True)
        ]
    return results


def rotated(items: Sequence[T], by: int) -> list[T]:
    """Return the items, beginning with another one each time.

    >>> rotated("abc", 1)
    ['b', 'c', 'a']
    """
    start = by % len(items) if items else 0
    return [*items[start:], *items[:start]]


def call_undisturbed(
    call: Callable[[], Call], patience: Patience
) -> tuple[Call, list[Sample]]:
    """Repeat a call while others keep the machine busy.

    Calls are chosen by what others did, never by their own speed.

    Returns:
      The first undisturbed call, or else the one that was disturbed least; and the
      samples of all others.
    """
    calls = [call()]
    while calls[-1].sample.foreign_cpus > patience.max_foreign_cpus:
        if len(calls) > patience.max_repeats:
            break
        wait_for_quiet(patience.max_foreign_cpus, patience.quiet_wait_s)
        calls.append(call())
    best = min(calls, key=lambda one: one.sample.foreign_cpus)
    return best, [one.sample for one in calls if one is not best]


def _run_round(
    contenders: Sequence[Contender],
    workload: Workload,
    patience: Patience,
    batch: int,
    number: int,
    tallies: Sequence[_Tally],
) -> list[Call | None]:
    """Return each engine's call, None for those that are out."""
    prompts = workload.prompts(batch, number)
    calls: list[Call | None] = [None] * len(contenders)
    for i in rotated(range(len(contenders)), number):
        one = contenders[i]
        if not one.is_running:
            continue

        def call(one: Contender = one) -> Call:
            return one.call(prompts, workload.output_tokens, patience.call_s)

        try:
            if number < 0:
                calls[i] = call()
                continue
            found, rejected = call_undisturbed(call, patience)
        except BackendError as error:
            one.fail(error)
            continue
        calls[i] = found
        tallies[i].samples.append(found.sample)
        tallies[i].rejected += rejected
    return calls


def _note_same_tokens(calls: Sequence[Call | None], tallies: Sequence[_Tally]) -> None:
    """Compare outputs with those of the first engine that has any."""
    done = [(c, t) for c, t in zip(calls, tallies, strict=True) if c is not None]
    for call, tally in done[1:]:
        share = share_of_same_tokens(call.token_ids, done[0][0].token_ids)
        tally.same_tokens.append(share)


def _describe(
    number: int, calls: Sequence[Call | None], contenders: Sequence[Contender]
) -> str:
    told = [
        f"{one.name} {call.sample.tokens_per_s:.1f} tok/s"
        + (f" (others: {foreign:.2f} CPUs)" if foreign >= 0.01 else "")
        for one, call in zip(contenders, calls, strict=True)
        if call is not None
        for foreign in (call.sample.foreign_cpus,)
    ]
    told += [f"{one.name} failed" for one in contenders if not one.is_running]
    name = "warm-up" if number < 0 else f"round {number + 1}"
    return f"{name}: {', '.join(told)}"


def _result(
    one: Contender,
    workload: Workload,
    batch: int,
    tally: _Tally,
    max_foreign_cpus: float,
) -> BackendResult:
    same = tally.same_tokens
    return BackendResult(
        backend=one.name,
        version=one.about.get("version"),
        batch=batch,
        prompt_tokens=sum(workload.prompt_lengths(batch)),
        output_tokens=batch * workload.output_tokens,
        samples=tuple(tally.samples),
        rejected=tuple(tally.rejected),
        init_s=one.about.get("init_s"),
        first_token_s=one.about.get("first_token_s"),
        start_foreign_cpus=one.about.get("start_foreign_cpus"),
        peak_rss_bytes=one.peak_rss_bytes,
        same_tokens=statistics.fmean(same) if same else None,
        versions=tuple(one.about.get("versions", {}).items()),
        max_foreign_cpus=max_foreign_cpus,
        error=one.error,
    )
