import json
import pathlib

import pytest

import jengine
from jengine.bench.saved import append_result, save_result, to_json


def test_a_result_carries_its_machine(tmp_path):
    save_result(tmp_path / "a.json", {"x": 1, "path": pathlib.Path("b")})
    found = json.loads((tmp_path / "a.json").read_text())
    assert (found["x"], found["path"]) == (1, "b")
    assert found["machine"]["versions"]["jengine"] == jengine.__version__
    assert found["date"].endswith("Z")


def test_results_can_be_added(tmp_path):
    for number in range(2):
        append_result(tmp_path / "a.jsonl", {"x": number})
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    assert [json.loads(line)["x"] for line in lines] == [0, 1]


def test_what_has_no_form_is_an_error():
    with pytest.raises(TypeError, match="object has no form"):
        to_json({"x": object()})
