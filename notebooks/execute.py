"""Executes the notebooks and keeps their outputs, without what changes from run to run.

    python notebooks/execute.py                        # all of them, in place
    python notebooks/execute.py 02_how_a_step_works    # one of them

Needs `pip install '.[notebook]'`. A notebook that writes to stderr is refused: what is
committed must read well.
"""

import argparse
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import Any

import nbclient
import nbformat

HERE = pathlib.Path(__file__).parent
_WIDGET = "application/vnd.jupyter.widget-view+json"
_LIMIT_S = 600  # of one cell; the first use of a program compiles it
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def find(names: Sequence[str] = ()) -> list[pathlib.Path]:
    """Return the notebooks of these names, or all, in order."""
    found = sorted(HERE.glob("*.ipynb"))
    return [path for path in found if not names or path.stem in names]


def read(path: pathlib.Path) -> Any:
    """Return a notebook."""
    return nbformat.read(path, as_version=4)


def execute(path: pathlib.Path) -> Any:
    """Run a notebook from top to bottom and return it with its outputs.

    Raises:
      nbclient.exceptions.CellExecutionError: a cell failed.
    """
    book = read(path)
    # The folder above holds the packages, installed or not.
    where = {"metadata": {"path": str(HERE.parent)}}
    client = nbclient.NotebookClient(
        book,
        timeout=_LIMIT_S,
        kernel_name="python3",
        resources=where,
        coalesce_streams=True,
    )
    return clean(client.execute())


def clean(book: Any) -> Any:
    """Drop what differs from machine to machine, in place."""
    book.metadata = nbformat.from_dict(
        {"kernelspec": _KERNEL, "language_info": {"name": "python"}}
    )
    for number, cell in enumerate(book.cells):
        cell["id"] = f"cell-{number}"
        cell["metadata"] = {}
        if cell.cell_type == "code":
            # A bar is a widget, of which a page without a kernel shows the start.
            cell.outputs = [o for o in cell.outputs if _WIDGET not in o.get("data", {})]
            for output in cell.outputs:
                if "metadata" in output:
                    output["metadata"] = {}
    return book


def noise(book: Any) -> list[str]:
    """Return what cells wrote to stderr."""
    outputs = [output for cell in book.cells for output in cell.get("outputs", ())]
    return [one.text for one in outputs if one.get("name") == "stderr"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Execute notebooks in place."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="without .ipynb; none for all")
    for path in find(parser.parse_args(arguments).names):
        start = time.monotonic()
        book = execute(path)
        if noise(book):
            print(f"{path.name} is left as it was; stderr: {noise(book)}")
            return 1
        nbformat.write(book, path)
        print(f"{path.name}: {time.monotonic() - start:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
