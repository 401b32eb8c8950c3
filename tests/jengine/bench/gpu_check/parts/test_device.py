import json

import jax

from jengine.bench.gpu_check.parts import device
from jengine.bench.gpu_check.recorder import Recorder


def test_what_numbers_depend_on_is_written_down():
    lines = []
    device.run(Recorder(lines.append, seconds=9.0))
    found = json.loads(lines[-1])
    assert found["status"] == "ok"
    assert found["platform"] == "cpu"
    assert found["compute_capability"] is None
    assert found["jax"] == found["packages"]["jax"] == jax.__version__


def test_the_driver_is_asked_where_there_is_one(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA H200, 580.1, 143771 MiB, 0 MiB'\n")
    program.chmod(0o755)
    monkeypatch.setattr(device.shutil, "which", lambda name: str(program))
    found = device.describe()["nvidia_smi"]
    assert found["name"] == "NVIDIA H200"
    assert found["driver_version"] == "580.1"
    monkeypatch.setattr(device.shutil, "which", lambda name: None)
    assert device.describe()["nvidia_smi"] is None
