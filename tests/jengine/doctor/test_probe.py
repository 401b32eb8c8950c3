import json

import jax
import pytest

from jengine.doctor import probe


def test_this_machine_runs_programs_and_kernels(capsys):
    assert probe.main() == 0
    found = json.loads(capsys.readouterr().out)
    assert found["platform"] == jax.default_backend()
    assert len(found["devices"]) == len(jax.local_devices())
    assert found["xla"] is None
    assert found["pallas"] is None
    assert found["pool_bytes"] > 2**20
    assert jax.__version__ in found["cache"]


def test_a_failure_is_what_was_found(monkeypatch, capsys):
    def refuse():
        raise RuntimeError("no device")

    monkeypatch.setattr(probe, "look", refuse)
    assert probe.main() == 0
    assert json.loads(capsys.readouterr().out) == {"error": "RuntimeError: no device"}


def test_an_error_without_words_is_its_kind(monkeypatch, capsys):
    def refuse():
        raise AssertionError

    monkeypatch.setattr(probe, "look", refuse)
    probe.main()
    assert json.loads(capsys.readouterr().out) == {"error": "AssertionError"}


def test_a_kernel_that_fails_is_told_apart(monkeypatch):
    def refuse(*, interpret):
        raise ValueError("no Triton")

    monkeypatch.setattr(probe, "run_pallas", refuse)
    found = probe.look()
    assert found["pallas"] == "ValueError: no Triton"
    assert found["xla"] is None


def test_a_wrong_result_is_a_failure():
    with pytest.raises(ArithmeticError, match=r"is 3\.0, and should be 4\.0"):
        probe._check(3.0, 4.0)
