import subprocess
import sys

import pytest

from jengine.display.picture import COLOURS, Picture, colours_of, new_figure, write_on
from jengine.errors import UnsupportedError


def picture():
    figure = new_figure(2, 1)
    write_on(figure.subplots(), 0.5, 0.5, "a $ b")
    return Picture(figure)


def test_equal_pictures_are_equal_bytes():
    png = picture()._repr_png_()
    assert png.startswith(b"\x89PNG")
    assert png == picture()._repr_png_()


def test_a_picture_can_be_saved(tmp_path):
    picture().save(tmp_path / "p.svg")
    assert "<svg" in (tmp_path / "p.svg").read_text()


def test_pyplot_stays_out_of_it():
    code = (
        "import sys; from jengine.display.picture import new_figure; new_figure(2, 1);"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_dollars_are_no_formula(tmp_path):
    figure = new_figure(2, 1)
    write_on(figure.subplots(), 0.5, 0.5, "a$x_$")
    Picture(figure).save(tmp_path / "p.svg")


def test_without_matplotlib_the_error_says_how_to_get_it(monkeypatch):
    for name in ("matplotlib.figure", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UnsupportedError, match=r"pip install '\.\[notebook\]'"):
        new_figure(2, 1)


def test_colours_go_by_first_appearance_and_repeat():
    assert colours_of(["b", "a", "b"]) == {"b": COLOURS[0], "a": COLOURS[1]}
    many = colours_of(map(str, range(13)))
    assert many["12"] == COLOURS[0]
    assert len(set(COLOURS)) == 12
