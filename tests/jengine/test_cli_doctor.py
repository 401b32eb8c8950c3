import json
import os
import subprocess
import sys

import pytest

from jengine import cli
from jengine.doctor import diagnose
from jengine.doctor.device import DeviceFacts


@pytest.fixture
def device(monkeypatch):
    """Replaces the process that starts jax by what it would find."""

    def find(facts):
        whole = diagnose.diagnose
        monkeypatch.setattr(
            diagnose, "diagnose", lambda env: whole(env, probe=lambda _: facts)
        )

    return find


CPU = DeviceFacts(platform="cpu", devices=("cpu",), cache="folder")


def test_a_machine_that_is_well(device, capsys):
    device(CPU)
    assert cli.main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "attention" in out
    assert "xla (the Pallas kernels are for NVIDIA GPUs" in out


def test_json_of_a_machine_that_is_not(device, capsys):
    device(DeviceFacts(error="RuntimeError: no device"))
    assert cli.main(["doctor", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["can_run"]
    assert "no device" in found["problems"][0]["what"]
    assert found["packages"]["jax"]


def test_a_platform_that_is_not_there_is_reported(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "jengine", "doctor"],
        # Without nvidia-smi, which would know of a GPU and advise otherwise.
        env=os.environ | {"JAX_PLATFORMS": "no-such-platform", "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "jax does not start" in done.stdout
    assert "unset JAX_PLATFORMS, which is 'no-such-platform'" in done.stdout
    assert "Traceback" not in done.stderr
