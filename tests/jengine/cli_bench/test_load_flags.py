import argparse

import pytest

from jengine.bench.bench_request import BenchRequest
from jengine.cli_bench import load_flags
from jengine.errors import InvalidValueError


def flags_of(text):
    parser = argparse.ArgumentParser()
    load_flags.add_load_flags(parser)
    parser.set_defaults(seed=0)  # of the data sets
    return parser.parse_args(text.split())


def requests(*arrivals):
    return [
        BenchRequest(prompt_tokens=1, output_tokens=1, arrival_s=one)
        for one in arrivals
    ]


def test_a_trace_keeps_its_times_unless_a_rate_is_given():
    recorded = requests(0.0, 1.5, 4.0)
    assert load_flags.schedule(flags_of(""), recorded) == [0.0, 1.5, 4.0]
    even = flags_of("--request-rate 2 --burstiness inf")
    assert load_flags.schedule(even, recorded) == pytest.approx([0.5, 1.0, 1.5])


def test_other_schedules():
    unrecorded = requests(None, None, None)
    assert load_flags.schedule(flags_of(""), unrecorded) == [0.0] * 3
    ramp = "--ramp-up-strategy exponential --burstiness inf --ramp-up-start-rps 1"
    rising = flags_of(f"{ramp} --ramp-up-end-rps 4")
    assert load_flags.schedule(rising, unrecorded) == pytest.approx([1.0, 1.5, 1.75])
    with pytest.raises(InvalidValueError, match="both rates"):
        load_flags.schedule(flags_of(ramp), unrecorded)


RAMP = "--ramp-up-strategy linear --ramp-up-start-rps 1 --ramp-up-end-rps 4"


@pytest.mark.parametrize(
    ("text", "is_recorded", "message"),
    [
        (RAMP, True, "none, for a trace"),
        (f"{RAMP} --request-rate 2", False, "none, or no ramp"),
        ("--ramp-up-end-rps 4", False, "one, for a ramp-up"),
    ],
)
def test_a_flag_that_would_be_ignored_is_refused(text, is_recorded, message):
    with pytest.raises(InvalidValueError, match=message):
        load_flags.check_schedule(flags_of(text), is_recorded=is_recorded)


@pytest.mark.parametrize("bad", ["nan", "inf", "0", "-1"])
@pytest.mark.parametrize("name", ["ramp_up_start_rps", "ramp_up_end_rps"])
def test_rates_of_a_ramp_are_finite_and_above_0(name, bad):
    flag = "--" + name.replace("_", "-")
    message = f"^{name} is {float(bad)}; allowed: a finite number above 0$"
    with pytest.raises(InvalidValueError, match=message):
        load_flags.check_schedule(flags_of(f"{RAMP} {flag} {bad}"), is_recorded=False)


@pytest.mark.parametrize("bad", ["nan", "-1"])
def test_a_wait_that_is_none(bad):
    flags = flags_of(f"--ready-check-timeout-sec {bad}")
    message = f"^ready_check_timeout_sec is {float(bad)}; allowed: at least 0$"
    with pytest.raises(InvalidValueError, match=message):
        load_flags.check_schedule(flags, is_recorded=False)


def test_sound_flags_are_not_refused():
    load_flags.check_schedule(flags_of(RAMP), is_recorded=False)
    load_flags.check_schedule(flags_of("--request-rate 2"), is_recorded=True)
    for wait in ("0", "9.5", "inf"):
        flags = flags_of(f"--ready-check-timeout-sec {wait}")
        load_flags.check_schedule(flags, is_recorded=False)
