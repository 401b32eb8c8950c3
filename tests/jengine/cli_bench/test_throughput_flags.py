import json

import pytest

SMALL = "--num-prompts 5 --input-len 4 --output-len 3"


@pytest.mark.parametrize("further", ["", "--async-engine", "--num-warmups 2"])
def test_requests_are_run(bench, capsys, tmp_path, further):
    path = tmp_path / "found.json"
    assert bench(f"throughput {SMALL} {further} --output-json {path}") == 0
    out = capsys.readouterr().out
    assert out.startswith("Throughput: ")
    assert "Total num output tokens:  15" in out
    found = json.loads(path.read_text())
    assert (found["num_requests"], found["total_num_tokens"]) == (5, 35)


def test_what_does_not_fit_is_refused(bench, capsys):
    assert bench("throughput --num-prompts 2 --input-len 250 --output-len 20") == 2
    assert "--input-len" in capsys.readouterr().err


def test_bad_input_is_one_line(bench, capsys):
    assert bench("throughput --dataset-name sharegpt") == 2
    assert "dataset_path is None" in capsys.readouterr().err
