import argparse
import json

import pytest

from jengine.cli_bench.result_file import add_result_flag, save_if_asked


@pytest.fixture
def parse():
    parser = argparse.ArgumentParser()
    add_result_flag(parser, wording="write all points there")
    assert "write all points there" in parser.format_help()
    return parser.parse_args


def test_a_result_is_written_where_the_flag_says(parse, tmp_path):
    path = tmp_path / "result.json"
    save_if_asked(parse(["--output-json", str(path)]), {"points": [1, 2]})
    assert json.loads(path.read_text())["points"] == [1, 2]


def test_without_the_flag_nothing_is_written(parse, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_if_asked(parse([]), {"points": []})
    assert list(tmp_path.iterdir()) == []
