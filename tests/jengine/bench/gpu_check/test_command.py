import json
import subprocess
import sys

import pytest

from jengine.bench.gpu_check.command import chosen, main, what_is_missing
from jengine.bench.gpu_check.part import PARTS


def test_a_gpu_is_all_that_is_missing_nowhere():
    found = {"case": "device", "status": "ok", "platform": "gpu", "jax": "0.11.2"}
    assert what_is_missing([found]) is None


@pytest.mark.parametrize(
    ("cases", "expected"),
    [
        ([{"status": "ok", "platform": "cpu", "jax": "0.11.2"}], "only 'cpu'"),
        ([{"status": "ok", "platform": "cpu", "jax": "0.11.2"}], "--smoke"),
        ([{"status": "failed", "reason": "RuntimeError: no CUDA"}], "no CUDA"),
        ([], "does not start"),
    ],
)
def test_what_is_missing_is_said(cases, expected):
    assert expected in what_is_missing(cases)


def test_parts_are_chosen_by_name_in_their_own_order():
    names = [part.name for part in chosen(["tuning", "kernel"], smoke=True)]
    assert names == ["kernel", "tuning"]
    assert chosen([], smoke=False) == PARTS
    assert set(chosen([], smoke=True)) < set(PARTS)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--minutes", "0"], "use more than 0"),
        (["--only", "nothing"], "invalid choice"),
        (["--smok"], "unrecognized"),
    ],
)
def test_a_wrong_command_line_is_refused(arguments, expected, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert expected in capsys.readouterr().err


def test_without_a_gpu_it_says_so_and_ends(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")  # also where there is one
    path = tmp_path / "found.json"
    assert main(["--json", str(path)]) == 2
    said = capsys.readouterr()
    assert "needs a GPU, its driver, and jax's plugin" in said.err
    assert said.out == ""
    found = json.loads(path.read_text())
    assert [part["name"] for part in found["parts"]] == ["device"]
    assert "needs a GPU" in found["missing"]


def test_help_lists_the_parts():
    command = [sys.executable, "-m", "jengine.bench.gpu_check", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert all(part.name in done.stdout for part in PARTS)
