import argparse

import pytest

from jengine.cli_bench.flag_types import (
    add_setting,
    count,
    counts,
    lengths,
    names,
    say,
    setting,
)


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (count, "3", 3),
        (counts, "1,8,64", (1, 8, 64)),
        (names, "jengine, vllm@a,", ("jengine", "vllm@a")),
        (lengths, "32-128", (32, 128)),
        (lengths, "7", (7, 7)),
        (setting, "vllm=/opt/a=b", ("vllm", "/opt/a=b")),
    ],
)
def test_values_are_read(read, text, value):
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text"),
    [(count, "0"), (count, "x"), (counts, "1,-2"), (lengths, "0-4"), (setting, "a")],
)
def test_other_values_are_refused(read, text):
    with pytest.raises((argparse.ArgumentTypeError, ValueError)):
        read(text)


def test_a_setting_may_be_given_several_times():
    parser = argparse.ArgumentParser()
    add_setting(parser, "--python", "BACKEND=PATH", "which Python")
    found = parser.parse_args(["--python", "a=1", "--python", "b=2"])
    assert found.python == [("a", "1"), ("b", "2")]


def test_progress_goes_to_stderr(capsys):
    say("half done")
    assert capsys.readouterr() == ("", "half done\n")
