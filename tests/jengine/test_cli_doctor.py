import json
import os
import subprocess
import sys

import pytest

from jengine import cli
from jengine.doctor import diagnose
from jengine.doctor.device import DeviceFacts
from jengine.doctor.software import FOR_SOME, NEEDED


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


# As after a plain `pip install --no-deps`: no dependency is installed.
BARE = """
import importlib.metadata, sys

class Lacking:
    def find_spec(self, name, path=None, target=None):
        package = name.partition(".")[0]
        if package in NEEDED:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)

from jengine.doctor.software import NEEDED
version = importlib.metadata.version
sys.meta_path.insert(0, Lacking())

def find(name):
    if name in NEEDED:
        raise importlib.metadata.PackageNotFoundError(name)
    return version(name)

importlib.metadata.version = find
from jengine import cli
from jengine.doctor import diagnose
from jengine.doctor.device import DeviceFacts
whole, dead = diagnose.diagnose, DeviceFacts(error="no jax")
diagnose.diagnose = lambda environment: whole(environment, probe=lambda _: dead)
sys.exit(cli.main(["doctor"]))
"""


def test_the_report_needs_none_of_the_packages_that_it_looks_for():
    done = subprocess.run(
        [sys.executable, "-c", BARE], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (1, "")
    stopping = " ".join(name for name in NEEDED if name not in FOR_SOME)
    assert f"  not installed: {stopping}\n  -> pip install {stopping}\n" in done.stdout
    for name in FOR_SOME:
        assert f"  -> pip install {name}\n" in done.stdout


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
