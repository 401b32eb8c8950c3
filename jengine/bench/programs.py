"""How many programs an engine compiled while it was measured, which takes time."""

from collections.abc import Iterable

from jengine.metrics import Counter, Metric

_NAME = "jengine:compiled_programs"


def count_programs(metrics: Iterable[Metric]) -> int:
    """Return how many programs an engine has compiled, from its metrics."""
    found = (m for m in metrics if m.name == _NAME and isinstance(m, Counter))
    return int(sum(metric.value for metric in found))


def about_programs(count: int) -> str:
    """Return what to say of figures during which so many programs were compiled."""
    return (
        f"note: {count} programs were compiled, or read from the compile cache, during"
        " the measurement, and the figures include it; --warmup or more --num-warmups"
        " does it before"
    )
