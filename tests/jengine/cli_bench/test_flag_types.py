import argparse

import pytest

from jengine.cli_bench.flag_types import (
    add_setting,
    amount,
    choices,
    count,
    counts,
    json_object,
    lengths,
    names,
    not_negative,
    numbers,
    output_file,
    percents,
    positive,
    ratio,
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
        (numbers, "50,99.9", (50.0, 99.9)),
        (percents, "0,99.9,100", (0.0, 99.9, 100.0)),
        (not_negative, "0", 0),
        (amount, "0", 0.0),
        (amount, "inf", float("inf")),
        (positive, "0.5", 0.5),
        (positive, "inf", float("inf")),
        (ratio, "0", 0.0),
        (ratio, "0.9", 0.9),
        (json_object, '{"a": [1]}', {"a": [1]}),
        (output_file, "new.json", "new.json"),
        (choices, "max-num-seqs=8,32", ("max_num_seqs", [8, 32])),
        (choices, "a=true,x,1.5", ("a", [True, "x", 1.5])),
    ],
)
def test_values_are_read(read, text, value):
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (count, "0"),
        (count, "x"),
        (counts, "1,-2"),
        (lengths, "0-4"),
        (setting, "a"),
        (not_negative, "-1"),
        (amount, "-0.1"),
        (amount, "nan"),
        (positive, "0"),
        (positive, "nan"),
        (positive, "x"),
        (numbers, "1,x"),
        (ratio, "-1"),
        (ratio, "1"),
        (ratio, "nan"),
        (json_object, "[1]"),
        (json_object, "x"),
        (percents, "50,101"),
        (percents, "-1"),
        (percents, "nan"),
        (output_file, "no/such/folder/new.json"),
        (output_file, "."),
    ],
)
def test_other_values_are_refused_in_words(read, text):
    with pytest.raises(argparse.ArgumentTypeError, match=r"\w \w"):
        read(text)


def test_a_setting_may_be_given_several_times():
    parser = argparse.ArgumentParser()
    add_setting(parser, "--python", "BACKEND=PATH", "which Python")
    found = parser.parse_args(["--python", "a=1", "--python", "b=2"])
    assert found.python == [("a", "1"), ("b", "2")]


def test_progress_goes_to_stderr(capsys):
    say("half done")
    assert capsys.readouterr() == ("", "half done\n")
