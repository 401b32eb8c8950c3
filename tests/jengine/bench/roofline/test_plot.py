import sys

import pytest

from jengine.bench.roofline.limits import Limits
from jengine.bench.roofline.plot import plot_roofline
from jengine.bench.roofline.roofline import Point, RooflineResult
from jengine.errors import UnsupportedError

RESULT = RooflineResult(
    context=128,
    limits=Limits(bytes_per_s=2e10, flops_per_s=1e11),
    points=tuple(
        Point(
            batch=batch,
            seconds=max(0.03, 0.003 * batch),
            memory_s=0.02,
            compute_s=0.002 * batch,
        )
        for batch in (1, 2, 4, 8, 16, 32, 64)
    ),
    knee=10.0,
    predicted_knee=10,
)


def test_a_picture_is_written(tmp_path):
    pytest.importorskip("matplotlib")
    plot_roofline(RESULT, tmp_path / "roofline.png")
    data = (tmp_path / "roofline.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(data) > 10_000


def test_without_matplotlib_it_says_what_to_install(tmp_path, monkeypatch):
    for name in ("matplotlib.backends.backend_agg", "matplotlib.figure", "matplotlib"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UnsupportedError, match="pip install matplotlib"):
        plot_roofline(RESULT, tmp_path / "roofline.png")
