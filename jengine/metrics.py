"""Metrics as values, and as text for Prometheus.

The classes and their fields are those of vLLM's `get_metrics()`. Standard library only.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from jengine.appearance import as_html, as_text, print_pretty


@dataclasses.dataclass(frozen=True, slots=True)
class Metric:
    """What all kinds of metric have.

    Attributes:
      name: as Prometheus spells it; a counter's without its ending `_total`.
      labels: what tells metrics of one name apart.
    """

    name: str
    labels: Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Counter(Metric):
    """A number that only grows."""

    value: int


@dataclasses.dataclass(frozen=True, slots=True)
class Gauge(Metric):
    """A number that goes up and down."""

    value: float


@dataclasses.dataclass(frozen=True, slots=True)
class Histogram(Metric):
    """How observations are spread.

    Attributes:
      count: number of observations.
      sum: of all observations.
      buckets: by upper limit, how many observations were at most that; the last key
        is "+Inf".
    """

    count: int
    sum: float
    buckets: Mapping[str, int]

    @property
    def mean(self) -> float:
        """Mean of the observations; 0 without any."""
        return self.sum / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """Estimate below which value a share of the observations lies.

        Observations are taken to be spread evenly inside a bucket, as by
        `histogram_quantile` of Prometheus; beyond the last limit that limit is the
        answer.

        >>> Histogram("h", {}, 4, 9.0, {"1.0": 2, "5.0": 4, "+Inf": 4}).quantile(0.75)
        3.0

        Args:
          share: from 0 to 1.
        """
        rank, below, low = share * self.count, 0, 0.0
        for limit, upto in self.buckets.items():
            if limit == "+Inf":
                return low
            high = float(limit)
            if upto >= rank and upto > below:
                return low + (high - low) * (rank - below) / (upto - below)
            below, low = upto, high
        return low


class Metrics(list[Metric]):
    """All metrics of an engine at one moment; a list that shows itself as a table."""

    __str__, _repr_html_, _repr_pretty_ = as_text, as_html, print_pretty


@dataclasses.dataclass(slots=True)
class RequestStateStats:
    """When what happened to a request; names as in vLLM.

    It is filled while the request lives, and changes no more after its end.

    Attributes:
      num_generation_tokens: output tokens.
      arrival_time: when it was added, in seconds since 1970.
      queued_ts: when it was added, in seconds of a clock that knows no leaps, like
        all that follow.
      scheduled_ts: when a step first ran some of it; 0 before that.
      first_token_ts: when its first token was known; 0 before that.
      last_token_ts: when its last token was known; 0 before its end.
      first_token_latency: seconds from its arrival to its first token.
    """

    num_generation_tokens: int = 0
    arrival_time: float = 0.0
    queued_ts: float = 0.0
    scheduled_ts: float = 0.0
    first_token_ts: float = 0.0
    last_token_ts: float = 0.0
    first_token_latency: float = 0.0


def to_prometheus(metrics: Iterable[Metric]) -> str:
    """Return metrics in Prometheus' text format, version 0.0.4."""
    lines: list[str] = []
    known: set[str] = set()
    for metric in metrics:
        if metric.name not in known:
            known.add(metric.name)
            kind = type(metric).__name__.lower()
            ending = "_total" if isinstance(metric, Counter) else ""
            lines.append(f"# TYPE {metric.name}{ending} {kind}")
        lines += _samples(metric)
    return "".join(line + "\n" for line in lines)


def _samples(metric: Metric) -> Iterator[str]:
    name, labels = metric.name, metric.labels
    match metric:
        case Counter():
            yield f"{name}_total{_labels(labels)} {metric.value}"
        case Gauge():
            yield f"{name}{_labels(labels)} {metric.value}"
        case Histogram():
            for limit, count in metric.buckets.items():
                yield f"{name}_bucket{_labels({**labels, 'le': limit})} {count}"
            yield f"{name}_sum{_labels(labels)} {metric.sum}"
            yield f"{name}_count{_labels(labels)} {metric.count}"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{k}="{_escape(v)}"' for k, v in labels.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
