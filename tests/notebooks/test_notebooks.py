"""Each notebook runs from top to bottom, and what is committed of it reads well."""

import importlib.util
import os
import pathlib

import nbformat
import pytest

ROOT = pathlib.Path(__file__).parent.parent.parent
SCRIPT = ROOT / "notebooks" / "execute.py"

if not SCRIPT.is_file():
    pytest.skip("the notebooks are in the checkout", allow_module_level=True)


def load_script():
    spec = importlib.util.spec_from_file_location("notebooks_execute", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT_MODULE = load_script()
BOOKS = SCRIPT_MODULE.find()


def name_of(path):
    return path.stem


@pytest.fixture
def quick_kernels(monkeypatch, tmp_path_factory):
    """Kernels of all notebooks share the programs that they compile."""
    cache = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        cache = cache.parent
    cache = os.environ.get("JENGINE_TEST_XLA_CACHE", cache / "xla")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    # Without it jupyter_core warns of a change of its folders, and warnings are errors.
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    # Matplotlib and IPython keep nothing in somebody's home.
    for name in ("MPLCONFIGDIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path_factory.mktemp(name.lower())))


def code_cells(book):
    return [cell for cell in book.cells if cell.cell_type == "code"]


def kinds(cell):
    """What a cell shows, without what depends on the machine or the moment."""
    found = [
        output.get("name") or sorted(output.data) for output in cell.get("outputs", ())
    ]
    return [one for one in found if one != "stderr"]


def test_there_are_five():
    assert [path.stem[:2] for path in BOOKS] == ["01", "02", "03", "04", "05"]


@pytest.mark.parametrize("path", BOOKS, ids=name_of)
def test_it_runs_and_shows_what_is_committed(path, quick_kernels):
    book = SCRIPT_MODULE.execute(path)  # a cell that fails raises
    committed = SCRIPT_MODULE.read(path)
    assert [kinds(cell) for cell in code_cells(book)] == [
        kinds(cell) for cell in code_cells(committed)
    ]


@pytest.mark.parametrize("path", BOOKS, ids=name_of)
def test_what_is_committed_reads_well(path):
    book = SCRIPT_MODULE.read(path)
    nbformat.validate(book)
    assert SCRIPT_MODULE.noise(book) == []
    assert any(kinds(cell) for cell in code_cells(book))
    counts = [cell.execution_count for cell in code_cells(book)]
    assert counts == list(range(1, len(counts) + 1))
    assert book == SCRIPT_MODULE.clean(SCRIPT_MODULE.read(path))
    assert path.stat().st_size < 2**20
    headings = [c.source for c in book.cells if c.cell_type == "markdown"]
    assert any("## On a GPU, and with a larger model" in text for text in headings)


def test_cleaning_drops_what_changes_and_keeps_what_is_read():
    widget = {"application/vnd.jupyter.widget-view+json": {}, "text/plain": "0%"}
    new = nbformat.v4
    outputs = [
        new.new_output("display_data", widget),
        new.new_output("stream", name="stderr", text="loud"),
        new.new_output("execute_result", {"text/plain": "3"}, execution_count=1),
    ]
    cell = new.new_code_cell("1 + 2", outputs=outputs, metadata={"time": 5})
    book = new.new_notebook(cells=[cell], metadata={"widgets": {}})
    cleaned = SCRIPT_MODULE.clean(book)
    (found,) = cleaned.cells
    assert found["id"] == "cell-0"
    assert found.metadata == {}
    assert kinds(found) == [["text/plain"]]
    assert set(cleaned.metadata) == {"kernelspec", "language_info"}
    assert SCRIPT_MODULE.noise(cleaned) == ["loud"]


def test_notebooks_are_found_by_name():
    assert SCRIPT_MODULE.find(["03_structured_output"]) == [BOOKS[2]]
    assert SCRIPT_MODULE.find(["nothing"]) == []
