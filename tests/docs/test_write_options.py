import dataclasses
import importlib.util
import pathlib

import pytest

from jengine import EngineConfig, SamplingParams, StructuredOutputsParams

SCRIPT = pathlib.Path(__file__).parents[2] / "docs" / "write_options.py"
if not SCRIPT.is_file():
    pytest.skip("only in a checkout", allow_module_level=True)


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("write_options", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_file_is_up_to_date(script):
    written = script.FILE.read_text("utf-8")
    assert written == script.make_text(), "run: python docs/write_options.py"


@pytest.mark.parametrize(
    "owner", [EngineConfig, SamplingParams, StructuredOutputsParams]
)
def test_every_field_has_its_line(script, owner):
    lines = script.make_text().splitlines()
    for field in dataclasses.fields(owner):
        (line, *_) = [one for one in lines if one.startswith(f"| `{field.name}` | `")]
        cells = line.replace(r"\|", "/").split("|")
        assert len(cells) == 6  # nothing before and after the four
        assert all(cell.strip() for cell in cells[1:5])


def test_a_line_as_it_reads(script):
    line = "| `block_size` | `int` | `16` | tokens in a KV block. |\n"
    assert line in script.make_text()
    assert "| `max_num_seqs` | `int \\| None` | `None` | most requests" in (
        script.make_text()
    )
    assert "| `tensor_parallel_size` | `1` |\n" in script.make_text()


def test_a_field_that_the_docstring_leaves_out(script):
    @dataclasses.dataclass
    class Options:
        """Some.

        Attributes:
          one: this.
        """

        one: int = 1
        two: int = 2

    with pytest.raises(KeyError, match="two"):
        script._table(Options)
