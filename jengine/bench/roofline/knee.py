"""Where a step stops to be limited by memory: fitted to steps, or from limits. Pure."""

from collections.abc import Callable, Sequence

import numpy as np

_CANDIDATES = 2000  # knees that are tried
_MOST_ROWS = 2**16


def fit_knee(batches: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the batch size up to which steps take about as long as one row's.

    The model is a time that is constant up to the knee and then grows in proportion
    to the batch; knee and constant are those of least squares of the logarithms.

    >>> round(fit_knee([1, 2, 4, 8, 16, 32], [5.0, 5.0, 5.0, 10.0, 20.0, 40.0]))
    4

    Args:
      batches: at least one size.
      seconds: of a step at each of them.
    """
    sizes = np.log(np.asarray(batches, np.float64))
    times = np.log(np.asarray(seconds, np.float64))
    knees = np.linspace(sizes.min(), sizes.max(), _CANDIDATES)
    rise = np.maximum(0.0, sizes[None, :] - knees[:, None])  # [candidate, size]
    rest = times[None, :] - rise
    errors = ((rest - rest.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    return float(np.exp(knees[int(errors.argmin())]))


def find_crossing(
    memory_s: Callable[[int], float], compute_s: Callable[[int], float]
) -> int | None:
    """Return the smallest batch for which arithmetic takes longer than memory.

    Args:
      memory_s: least seconds that a step of so many rows moves bytes.
      compute_s: least seconds that it calculates.

    Returns:
      None if there is no such batch: where each row's own keys and values take longer
      to read than its arithmetic takes.
    """
    rows = range(1, _MOST_ROWS)
    if compute_s(rows[-1]) < memory_s(rows[-1]):
        return None
    low, high = 1, rows[-1]
    while low < high:
        middle = (low + high) // 2
        if compute_s(middle) >= memory_s(middle):
            high = middle
        else:
            low = middle + 1
    return low
