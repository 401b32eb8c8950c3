"""Importing the package is cheap, and every public name can be had from it."""

import subprocess
import sys

import pytest

from jengine import testing


def test_every_name_loads() -> None:
    for name in testing.__all__:
        assert getattr(testing, name) is not None


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = testing.nothing


def test_import_loads_no_library() -> None:
    code = (
        "import sys, jengine.testing\n"
        "heavy = {'numpy', 'jax', 'torch', 'transformers', 'tokenizers'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
