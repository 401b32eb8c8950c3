"""Says so when other processes used the machine while something was measured."""

import contextlib
from collections.abc import Iterator

from jengine.bench.compare.cpu_load import foreign_cpus, read_cpu_times
from jengine.cli_bench.flag_types import say

MOST_FOREIGN_CPUS = 0.2  # that are left unmentioned


@contextlib.contextmanager
def watching_others() -> Iterator[None]:
    """Watch from entry to exit; what others used may have changed every figure."""
    before = read_cpu_times()
    yield
    used = foreign_cpus(before, read_cpu_times())
    if used > MOST_FOREIGN_CPUS:
        say(
            f"note: other processes used {used:.1f} CPUs meanwhile; on a quiet machine"
            " the figures will differ"
        )
