"""How values look in a notebook or a terminal, for the classes that say so.

A class takes these three as its methods. `jengine.display` makes tables of values; it
is loaded when somebody looks at one, so that no step of the engine pays for it.
"""

import importlib
from typing import Any


def as_text(self: object) -> str:
    """Return a value as lines of text; for `__str__`."""
    return importlib.import_module("jengine.display.sheets").shown_as_text(self)


def as_html(self: object) -> str:
    """Return a value as HTML, with all that it holds escaped; for `_repr_html_`."""
    return importlib.import_module("jengine.display.sheets").shown_as_html(self)


def print_pretty(self: object, printer: Any, cycle: bool) -> None:
    """Write a value to IPython's printer; for `_repr_pretty_`."""
    del cycle  # no value holds itself
    printer.text(as_text(self))
