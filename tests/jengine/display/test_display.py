import subprocess
import sys

import pytest

import jengine.display


@pytest.mark.parametrize("name", jengine.display.__all__)
def test_every_public_name_is_there(name):
    assert callable(getattr(jengine.display, name))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'pie_chart'"):
        jengine.display.pie_chart  # noqa: B018


def test_looking_at_nothing_loads_nothing():
    script = (
        "import sys, jengine.display, jengine.outputs, jengine.core.plan\n"
        "found = {n for n in sys.modules if n.startswith('jengine.display.')}\n"
        "assert not found, found\n"
        "assert 'matplotlib' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
