"""What is shown of outputs, plans, statistics and the KV pool: one sheet for each.

The classes themselves ask here for their text and HTML, by `shown_as_text` and
`shown_as_html`, when somebody looks at them; importing them does not import this.
"""

import functools
from collections.abc import Iterable, Iterator

from jengine.core.cache_manager import CacheManager
from jengine.core.plan import ScheduledRequest, StepPlan
from jengine.core.stats import SchedulerStats
from jengine.display.pool_text import describe_pool, pool_notes, table_rows
from jengine.display.sheet import Sheet, sheet
from jengine.metrics import (
    Counter,
    Gauge,
    Histogram,
    Metric,
    Metrics,
    RequestStateStats,
)
from jengine.outputs import CompletionOutput, RequestOutput

_MOST_ROWS = 40
_IDENTIFYING = ("model_name", "engine")  # labels that all metrics of an engine share


@functools.singledispatch
def sheet_of(value: object) -> Sheet:
    """Return what is shown of a value.

    Raises:
      TypeError: nothing is known of values of this kind.
    """
    raise TypeError(f"no sheet shows a {type(value).__name__}")


def shown_as_text(value: object) -> str:
    """Return a value as lines of text."""
    return sheet_of(value).to_text()


def shown_as_html(value: object) -> str:
    """Return a value as HTML; all that it holds is escaped."""
    return sheet_of(value).to_html()


@sheet_of.register
def _(value: RequestOutput) -> Sheet:
    cached = value.num_cached_tokens
    asked = f"{len(value.prompt_token_ids)} prompt tokens"
    asked += f", {cached} of them cached" if cached else ""
    prompt = value.prompt if value.prompt is not None else str(value.prompt_token_ids)
    rows = [("prompt", prompt)]
    rows += [(f"output {one.index}", _completion(one)) for one in value.outputs]
    state = "finished" if value.finished else "goes on"
    return sheet(
        f"request {value.request_id}: {asked}, {state}", (), rows, _times(value)
    )


@sheet_of.register
def _(value: StepPlan) -> Sheet:
    single = value.num_single_token_rows
    title = (
        f"step {value.step}: {_count(value.num_tokens, 'token')} in "
        f"{_count(len(value.rows), 'row')}, {single} of one token"
    )
    header = ("request", "seat", "computed", "runs", "token ids", "new blocks", "then")
    notes = [
        f"{word}: {', '.join(ids)}"
        for word, ids in (
            ("finished before", value.finished_ids),
            ("preempted before", value.preempted_ids),
        )
        if ids
    ]
    if len(value.rows) > _MOST_ROWS:
        notes.insert(0, f"and {len(value.rows) - _MOST_ROWS} rows more")
    return sheet(title, header, map(_plan_row, value.rows[:_MOST_ROWS]), notes)


@sheet_of.register
def _(value: SchedulerStats) -> Sheet:
    hits, asked = value.prefix_cache_hits, value.prefix_cache_queries
    share = f" ({hits / asked:.0%})" if asked else ""
    used, blocks = value.num_blocks_in_use, value.num_blocks
    rows = [
        ("steps", f"{value.num_steps:,}"),
        ("tokens run", f"{value.num_scheduled_tokens:,}"),
        ("prompt tokens found in the cache", f"{hits:,} of {asked:,}{share}"),
        ("preemptions", f"{value.num_preemptions:,}"),
        ("requests now", f"{value.num_running} running, {value.num_waiting} waiting"),
        ("blocks in use", f"{used:,} of {blocks:,} ({used / max(1, blocks):.0%})"),
        ("blocks in the prefix index", f"{value.num_blocks_cached:,}"),
    ]
    return sheet("scheduler", (), rows)


@sheet_of.register(Metrics)
def _(value: Iterable[Metric]) -> Sheet:
    header = ("metric", "value", "mean", "median", "p99", "sum")
    names = sorted(
        {one.labels.get("model_name", "").rpartition("/")[2] for one in value}
    )
    title = " ".join(["metrics of", *names]) if any(names) else "metrics"
    return sheet(title, header, [_metric_row(one) for one in value])


@sheet_of.register
def _(value: CacheManager) -> Sheet:
    tables = table_rows(value)
    return sheet(
        describe_pool(value),
        ("request", "blocks", "block table") if tables else (),
        tables,
        pool_notes(value.pool),
    )


def _completion(one: CompletionOutput) -> str:
    facts = [_count(len(one.token_ids), "token")]
    if one.finish_reason is not None:
        why = f" {one.stop_reason!r}" if one.stop_reason is not None else ""
        facts.append(f"{one.finish_reason}{why}")
    if one.cumulative_logprob is not None:
        facts.append(f"logprob {one.cumulative_logprob:.2f}")
    text = one.text or str(one.token_ids)
    return f"{text}\n[{'; '.join(facts)}]"


def _times(output: RequestOutput) -> Iterator[str]:
    times = output.metrics
    if not isinstance(times, RequestStateStats) or not times.first_token_ts:
        return
    first = times.first_token_ts - times.queued_ts
    line = f"first token after {first:.3f} s"
    rest = times.last_token_ts - times.first_token_ts
    if times.num_generation_tokens > 1 and rest > 0:
        line += f", then {(times.num_generation_tokens - 1) / rest:.1f} tokens/s"
    yield line


def _plan_row(row: ScheduledRequest) -> tuple[object, ...]:
    ids = ("carried", *row.token_ids) if row.carries else row.token_ids
    computed = str(row.num_computed_tokens)
    if row.options is not None and row.num_computed_tokens:
        computed += " (cached)"
    return (
        row.request_id,
        row.seat,
        computed,
        row.num_tokens,
        _listed(ids),
        _listed(row.new_block_ids),
        "samples" if row.samples else "goes on",
    )


def _metric_row(one: Metric) -> tuple[object, ...]:
    own = {k: v for k, v in one.labels.items() if k not in _IDENTIFYING}
    name = one.name + (f" {', '.join(own.values())}" if own else "")
    match one:
        case Histogram():
            middle, high = one.quantile(0.5), one.quantile(0.99)
            numbers = (one.mean, middle, high, one.sum) if one.count else ()
            return (name, f"{one.count:,}", *map(_short, numbers), *_blank(numbers))
        case Counter():
            return (name, f"{one.value:,}", *_blank(()))
        case Gauge():
            return (name, _short(one.value), *_blank(()))
        case _:
            return (name, "", *_blank(()))


def _blank(numbers: tuple[float, ...]) -> tuple[None, ...]:
    return (None,) * (4 - len(numbers))


def _short(number: float) -> str:
    return f"{number:.3g}" if abs(number) < 1000 else f"{number:,.0f}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _listed(values: Iterable[object], most: int = 8) -> str:
    shown = [str(value) for value in values]
    if len(shown) > most:
        shown[most - 2 : -1] = ["..."]
    return " ".join(shown)
