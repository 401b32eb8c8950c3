"""Rules of the repository that no other tool checks."""

import ast
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PACKAGES = ("jengine", "models", "kernels_pallas")

if not (ROOT / "jengine").is_dir():
    pytest.skip("these rules are about a checkout", allow_module_level=True)

LONGEST_FILE = 400  # lines
MODULES = sorted(p for name in PACKAGES for p in (ROOT / name).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
MAY_READ_ENVIRONMENT = "jengine/cli.py"
PRIVATE_PLACES = re.compile(r"(?<![\w.])/(?:work|farm|home|root|tmp|Users)/\w")

NO_TEST_OF_THEIR_OWN = {
    "jengine/__main__.py": "three lines; tests of cli start it",
    "jengine/config_rules.py": "a table; tests of config go through every row",
    "models/inputs.py": "declares a container; every test of a model fills one",
    "models/kv_cache.py": "declares a container; the same tests fill it",
    "models/layers/attention_backend.py": "declares a protocol, and nothing runs",
    "kernels_pallas/paged_attention/xla_rows.py": "half of xla; its tests cover both",
    "kernels_pallas/paged_attention/xla_tiles.py": "the other half of xla",
    "jengine/bench/serve/target.py": "declares a protocol, and nothing runs",
    "jengine/runner_protocol.py": "declares a protocol; tests of runners check it",
    "jengine/logprobs.py": "two names; tests of sampling_params and config use them",
    "jengine/runner/handle.py": "declares containers; tests of the runner fill them",
    "jengine/request_text.py": "tests of output_processor take it apart",
    "jengine/sampling_rules.py": "a table; tests of sampling_params do the same",
}


def relative(path: pathlib.Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_there_are_modules_to_check():
    assert len(MODULES) > 10
    assert len(TESTS) > 5


def test_no_package_hides_under_tests():
    # One would shadow the package of the same name: `models`.
    assert [relative(p) for p in (ROOT / "tests").rglob("__init__.py")] == []


@pytest.mark.parametrize("path", MODULES + TESTS, ids=relative)
def test_files_are_short(path):
    assert len(path.read_text("utf-8").splitlines()) <= LONGEST_FILE


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_every_module_says_what_it_is_for(path):
    assert ast.get_docstring(ast.parse(path.read_text("utf-8")))


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_only_the_command_line_reads_the_environment(path):
    if relative(path) == MAY_READ_ENVIRONMENT:
        return
    names = {
        node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
    }
    assert not names & {"environ", "getenv", "environb", "putenv"}


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_every_module_has_its_test_file(path):
    if relative(path) in NO_TEST_OF_THEIR_OWN:
        return
    mirrored = mirror(path)
    if path.name == "__init__.py" and is_only_docstring(path):
        return
    assert mirrored.is_file(), f"write {relative(mirrored)}"


def test_listed_exceptions_exist():
    missing = [name for name in NO_TEST_OF_THEIR_OWN if not (ROOT / name).is_file()]
    assert missing == []


def test_no_tracked_file_names_a_place_on_somebodys_machine():
    found = [
        f"{name}: {match.group()}"
        for name in tracked_files()
        if (match := PRIVATE_PLACES.search(read_text(ROOT / name)))
    ]
    assert found == []


def mirror(path: pathlib.Path) -> pathlib.Path:
    name = path.parent.name if path.name == "__init__.py" else path.stem
    if path.name == "__init__.py" and path.parent.name in PACKAGES:
        name = "init"
    inside = path.relative_to(ROOT).parent
    return ROOT / "tests" / inside / f"test_{name.strip('_')}.py"


def is_only_docstring(path: pathlib.Path) -> bool:
    """Whether a package's `__init__` holds nothing that a test could run."""
    body = ast.parse(path.read_text("utf-8")).body[1:]
    return all(isinstance(n, ast.ImportFrom | ast.Import | ast.Assign) for n in body)


def tracked_files() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    # This file spells the places that it looks for.
    return [n for n in listed.stdout.splitlines() if n != "tests/test_layout.py"]


def read_text(path: pathlib.Path) -> str:
    try:
        return path.read_text("utf-8")
    except (UnicodeDecodeError, FileNotFoundError):
        return ""
