"""The page names tests and functions: they must be there."""

import importlib
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reproducibility.md"
if not PAGE.is_file():
    pytest.skip("only in a checkout", allow_module_level=True)
TEXT = PAGE.read_text("utf-8")
TESTS = re.findall(r"`((?:core/)?test_\w+\.py)`", TEXT)


def test_tests_that_it_names_are_there():
    assert len(TESTS) > 5
    missing = [n for n in TESTS if not (ROOT / "tests" / "jengine" / n).is_file()]
    assert missing == []


def test_functions_that_it_names_are_there():
    named = re.findall(r"`(jengine(?:\.\w+)+)`", TEXT)
    assert len(named) == 2
    for name in named:
        module, _, function = name.rpartition(".")
        assert callable(getattr(importlib.import_module(module), function))


@pytest.mark.parametrize(
    "page",
    [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))],
    ids=lambda p: p.name,
)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#:]+)[#)]", page.read_text("utf-8"))
    missing = [link for link in links if not (page.parent / link).exists()]
    assert missing == []
