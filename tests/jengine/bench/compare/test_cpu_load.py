import subprocess
import sys
import types

import pytest

from jengine.bench.compare.cpu_load import (
    CpuTimes,
    busy_seconds,
    foreign_cpus,
    read_cpu_times,
)


def test_foreign_is_what_is_busy_and_not_ours():
    before = CpuTimes(at=10.0, busy=100.0, own=40.0)
    after = CpuTimes(at=14.0, busy=107.0, own=46.0)
    assert foreign_cpus(before, after) == pytest.approx(0.25)


def test_rounding_of_the_clocks_makes_nothing_negative():
    before = CpuTimes(at=0.0, busy=0.0, own=0.0)
    assert foreign_cpus(before, CpuTimes(at=1.0, busy=1.0, own=1.01)) == 0.0
    assert foreign_cpus(before, before) == 0.0


def test_stolen_time_is_busy_and_waiting_is_not():
    times = types.SimpleNamespace(
        user=1.0, nice=2.0, system=4.0, irq=8.0, softirq=16.0, steal=32.0,
        idle=1e3, iowait=1e4, guest=1e5, guest_nice=1e6,
    )  # fmt: skip
    assert busy_seconds(times) == 63.0
    assert busy_seconds(types.SimpleNamespace(user=1.0, system=2.0)) == 3.0


def test_children_count_as_ours_even_after_their_end():
    burn = "import time\nwhile time.process_time() < 0.2: pass"
    before = read_cpu_times()
    subprocess.run([sys.executable, "-c", burn], check=True)
    after = read_cpu_times()
    assert after.own - before.own >= 0.15  # the kernel counts in steps of 10 ms
    assert after.busy - before.busy >= 0.15
    assert after.at > before.at
