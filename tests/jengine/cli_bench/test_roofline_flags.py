import json
import shutil

import pytest

from jengine import cli
from jengine.bench.roofline import limits


@pytest.fixture(autouse=True)
def fixed_limits(monkeypatch):
    """The machine's limits are measured elsewhere."""
    fixed = limits.Limits(bytes_per_s=2e10, flops_per_s=1e11)
    monkeypatch.setattr(limits, "measure_limits", lambda dtype: fixed)


def test_steps_are_measured_and_drawn(bench, asked, f2_dir, capsys, tmp_path):
    pytest.importorskip("matplotlib")
    path, picture = tmp_path / "found.json", tmp_path / "found.png"
    status = bench(
        f"roofline --model {f2_dir} --batches 1,2,4 --context 8 --steps 3"
        f" --output-json {path} --png {picture}"
    )
    assert status == 0
    assert asked == [{"max_num_seqs": 4}]
    out, err = capsys.readouterr()
    assert "memory 20.0 GB/s, products 100.0 GFLOP/s, context 8" in out
    assert "knee: measured at batch " in out
    assert "batch 4: " in err
    found = json.loads(path.read_text())
    assert [point["batch"] for point in found["points"]] == [1, 2, 4]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_config_alone_will_do(f2_dir, capsys, tmp_path):
    shutil.copy(f2_dir / "config.json", tmp_path)
    command = ["bench", "roofline", "--model", str(tmp_path), "--batches", "1"]
    command += ["--context", "8", "--steps", "2", "--max-model-len", "64"]
    assert cli.main(command) == 2
    assert "neither model.safetensors nor" in capsys.readouterr().err
    command += ["--load-format", "dummy", "--skip-tokenizer-init"]
    assert cli.main(command) == 0
    assert "knee: measured at batch " in capsys.readouterr().out


def test_no_room_is_one_line(bench, capsys):
    assert bench("roofline --batches 1 --context 250 --steps 20") == 2
    assert "batch and context" in capsys.readouterr().err
