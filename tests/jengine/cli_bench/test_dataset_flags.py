import argparse
import json

import pytest

from jengine.cli_bench.dataset_flags import add_dataset_flags, make_requests
from jengine.errors import InvalidValueError

TRACE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.0,374,44
2023-11-16 18:15:50.0,30,109
2023-11-16 18:15:51.0,879,55
"""


def make(text, encode=None, **options):
    parser = argparse.ArgumentParser()
    add_dataset_flags(parser, num_prompts=6)
    flags = parser.parse_args(text.split())
    return make_requests(flags, vocab_size=40, encode=encode, **options)


def test_random_by_default():
    found = make("")
    assert {(one.prompt_tokens, one.output_tokens) for one in found} == {(1024, 128)}
    assert len(found) == 6
    found = make(
        "--num-prompts 50 --input-len 10 --output-len 4 --random-range-ratio 0.5"
        " --random-prefix-len 2"
    )
    assert {one.prompt_tokens for one in found} == set(range(7, 18))
    assert len({one.token_ids[:2] for one in found}) == 1
    assert make("--seed 1") != make("--seed 2")


@pytest.mark.parametrize(
    ("text", "longest"),
    [("", 200), ("--output-len 1 --random-range-ratio 0.5 --random-prefix-len 40", 40)],
)
def test_random_prompts_fit_into_the_model(text, longest, capsys):
    found = make(text + " --num-prompts 50", max_model_len=200)
    lengths = {one.prompt_tokens + one.output_tokens for one in found}
    assert longest - 5 <= max(lengths) <= 200
    assert "as fits into max_model_len = 200" in capsys.readouterr().err
    assert make("", max_model_len=4000) == make("")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("--input-len 200", "--input-len"),
        ("--dataset-name prefix_repetition --num-prompts 10", "-suffix-len"),
    ],
)
def test_what_is_too_long_is_refused(text, hint):
    with pytest.raises(InvalidValueError, match=f"max_model_len = 300 .*{hint}"):
        make(text, max_model_len=300)


@pytest.mark.parametrize(
    "text",
    [
        "--random-range-ratio -1",
        "--random-range-ratio nan",
        "--trace-speed nan",
        "--seed -1",
    ],
)
def test_numbers_out_of_range_are_one_line(text, capsys):
    with pytest.raises(SystemExit):
        make(text, max_model_len=300)
    assert f"argument {text.split()[0]}: " in capsys.readouterr().err


def test_names_of_vllm():
    named = make("--random-input-len 5 --random-output-len 3")
    assert named == make("--input-len 5 --output-len 3")


def test_shared_prefixes():
    found = make(
        "--dataset-name prefix_repetition --prefix-repetition-num-prefixes 2"
        " --prefix-repetition-prefix-len 5 --prefix-repetition-suffix-len 3"
    )
    assert len({one.token_ids[:5] for one in found}) == 2
    assert {one.prompt_tokens for one in found} == {8}


def test_a_trace_with_its_time_scaled_and_lengths_cut(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    found = make(
        f"--dataset-name trace --dataset-path {path} --trace-speed 2"
        " --max-prompt-tokens 100 --max-output-tokens 50 --num-prompts 2"
    )
    assert [(o.arrival_s, o.prompt_tokens, o.output_tokens) for o in found] == [
        (0.0, 100, 44),
        (2.0, 30, 50),
    ]
    assert len(make(f"--dataset-path {path}")) == 3  # its name says what it is


def test_a_path_alone_is_of_conversations(tmp_path):
    path = tmp_path / "talk.json"
    turns = [{"value": "a b c d e"}, {"value": "f g h i"}]
    path.write_text(json.dumps([{"conversations": turns}]))
    (one,) = make(f"--dataset-path {path}", encode=lambda text: list(range(len(text))))
    assert (one.prompt_tokens, one.output_tokens, one.text) == (9, 7, "a b c d e")
    with pytest.raises(InvalidValueError, match="tokenizer is None"):
        make(f"--dataset-path {path}")


@pytest.mark.parametrize("name", ["trace", "sharegpt"])
def test_a_file_is_needed(name):
    with pytest.raises(InvalidValueError, match=f"a file, for {name}"):
        make(f"--dataset-name {name}")
