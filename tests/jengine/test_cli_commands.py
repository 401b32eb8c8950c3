"""What is known of commands before they are used, and what is imported for one."""

import importlib
import subprocess
import sys

import pytest

from jengine import cli
from jengine.cli_bench import commands as bench_commands
from jengine.cli_commands import Command, Parser, add_commands

# Prints which of the words that follow name a module, or a part of one, that a command
# line has imported.
IMPORTED = """
import sys
from jengine import cli
line, *words = sys.argv[1:]
try:
    cli.main(line.split())
except SystemExit:
    pass
names = {part for name in sys.modules for part in (name, name.partition(".")[0])}
sys.stderr.write(" ".join(word for word in words if word in names))
"""
HEAVY = ["jax", "numpy", "transformers", "tqdm", "psutil", "asyncio"]


def imported(line, *words):
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, line, *words],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout  # the help
    return done.stderr.split()


@pytest.mark.parametrize("line", ["--help", "generate --help", "bench --help"])
def test_help_imports_what_it_needs(line):
    modules = [command.module for command in cli.COMMANDS.values()]
    modules += [command.module for command in bench_commands.COMMANDS.values()]
    own = [cli.COMMANDS[word].module for word in line.split() if word in cli.COMMANDS]
    assert imported(line, *HEAVY, *modules, "jengine.bench", "jengine.aot") == own


@pytest.mark.parametrize("table", [cli.COMMANDS, bench_commands.COMMANDS])
def test_help_lists_all_commands(table, capsys):
    parser = Parser(prog="x")
    add_commands(parser, table, dest="command", metavar="COMMAND")
    with pytest.raises(SystemExit):
        parser.parse_args(["--help"])
    out = " ".join(capsys.readouterr().out.split())
    for name, command in table.items():
        assert f"{name} {command.help}" in out
        assert callable(importlib.import_module(command.module).add_flags)


@pytest.fixture
def parse(tmp_path, monkeypatch):
    """Parses with one command, whose module is made for this test."""
    monkeypatch.syspath_prepend(tmp_path)

    def parse(source, *arguments):
        (tmp_path / "made_command.py").write_text(source)
        monkeypatch.delitem(sys.modules, "made_command", raising=False)
        parser = Parser(prog="x")
        table = {"make": Command("makes it", "made_command")}
        add_commands(parser, table, dest="command", metavar="COMMAND")
        return parser.parse_args(arguments)

    return parse


MADE = """'''Two lines
of a docstring.'''
def add_flags(parser):
    parser.add_argument("--size", type=int, default=3)
def run(flags, environment):
    return flags.size
"""


def test_a_command_brings_its_flags_and_what_runs_it(parse):
    flags = parse(MADE, "make", "--size", "5")
    assert (flags.command, flags.size) == ("make", 5)
    assert flags.run(flags, {}) == 5
    assert parse(MADE, "make").size == 3


def test_a_docstring_stands_in_for_a_description(parse, capsys):
    with pytest.raises(SystemExit):
        parse(MADE, "make", "--help")
    assert "Two lines\nof a docstring." in capsys.readouterr().out
    described = MADE.replace("parser.add", "parser.description = 'Other.'; parser.add")
    with pytest.raises(SystemExit):
        parse(described, "make", "--help")
    out = capsys.readouterr().out
    assert "Other." in out
    assert "docstring" not in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "argument COMMAND: invalid choice: 'nothing'"),
        ([], "the following arguments are required: COMMAND"),
        (["make", "--sze=5"], "unrecognized arguments: --sze=5; did you mean --size?"),
        (["make", "a", "b"], "unrecognized arguments: a b (see x make -h)"),
        (["make", "--size", "x"], "argument --size: invalid int value: 'x'"),
    ],
)
def test_a_wrong_line_is_one_line_and_status_2(parse, capsys, arguments, message):
    with pytest.raises(SystemExit) as stop:
        parse(MADE, *arguments)
    assert stop.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith(f"jengine: error: {message}")
    assert err.count("\n") == 1
