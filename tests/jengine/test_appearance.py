import io
import subprocess
import sys

from IPython.lib.pretty import PrettyPrinter

from jengine.core.stats import SchedulerStats

STATS = SchedulerStats(3, 20, 0, 16, 8, 1, 2, 4, 5, 9)


def test_text_html_and_pretty_form_come_from_the_display():
    text = str(STATS)
    assert "20" in text
    assert "<table" in STATS._repr_html_()
    written = io.StringIO()
    printer = PrettyPrinter(written)
    STATS._repr_pretty_(printer, cycle=False)
    printer.flush()
    assert written.getvalue() == text


def test_nothing_is_loaded_before_somebody_looks():
    code = (
        "import sys, jengine.core.plan, jengine.outputs, jengine.metrics;"
        "print('jengine.display' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\n", "")
