import io
import sys

from jengine.doctor.report import Fact, Problem, Report
from jengine.doctor.text import print_report

LONG = "word " * 40


def printed(report):
    file = io.StringIO()
    print_report(report, file)
    return file.getvalue()


def test_lines_are_whole_and_without_colours_in_a_file():
    facts = (Fact("attention", "xla", "[a] CPU"), Fact("x", LONG + "\nend"))
    assert printed(Report({"choices": facts, "empty": ()}, ())) == (
        "choices\n"
        "  attention  xla ([a] CPU)\n"
        f"  x          {LONG}end\n"
        "\n"
        "no problem found\n"
    )


def test_without_rich_the_same_text_is_plain(monkeypatch):
    facts = (Fact("attention", "xla", "[a] CPU"), Fact("x", LONG))
    problems = (Problem("no rich", "pip install rich"), Problem("a", "b", stops=True))
    report = Report({"choices": facts}, problems)
    with_rich = printed(report)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert printed(report) == with_rich


def test_problems_and_their_remedies():
    stops = Problem("no jax", "pip install 'jax[cuda13]'", stops=True)
    assert printed(Report({}, (stops,))) == (
        "problems\n"
        "  no jax\n"
        "  -> pip install 'jax[cuda13]'\n"
        "\n"
        "no model can be run before this is mended\n"
    )
    assert "no model" not in printed(Report({}, (Problem("a", "b"),)))
