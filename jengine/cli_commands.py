"""Commands by name, each in a module of its own that is imported when it is used.

Such a module has `add_flags(parser)` and, unless it only brings further commands,
`run(flags, environment)`, which returns the exit status. Where it sets no description
its docstring is one.
"""

import argparse
import difflib
import importlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

EXIT_BAD_INPUT = 2


class Command(NamedTuple):
    """What is known of a command before it is used.

    Attributes:
      help: one line.
      module: full name of the module that has its flags.
    """

    help: str
    module: str


class Parser(argparse.ArgumentParser):
    """Reports a wrong command line in one line."""

    def error(self, message: str) -> NoReturn:
        """End the process."""
        self.exit(EXIT_BAD_INPUT, f"jengine: error: {message} (see {self.prog} -h)\n")


class CommandParser(Parser):
    """The parser of one command; without flags until there is something to parse."""

    def __init__(self, *, module: str, **options: Any) -> None:
        """Make a parser.

        Args:
          module: see `Command`.
          **options: of argparse.
        """
        super().__init__(allow_abbrev=False, **options)
        self._module: str | None = module

    def parse_known_args(self, *given: Any, **named: Any) -> Any:
        """Add the flags, then parse; the result's `run` is the module's.

        Ends the process if there are other arguments than the command's.
        """
        if self._module is not None:
            module = importlib.import_module(self._module)
            self._module = None
            module.add_flags(self)
            self.set_defaults(run=getattr(module, "run", None))
            if self.description is None:
                self.description = module.__doc__
                self.formatter_class = argparse.RawDescriptionHelpFormatter
        flags, rest = super().parse_known_args(*given, **named)
        if rest:  # refused here, for this parser knows what there is
            self.error(f"unrecognized arguments: {' '.join(rest)}{self._hint(rest[0])}")
        return flags, rest

    def _hint(self, flag: str) -> str:
        known = re.findall(r"--[\w-]+", self.format_usage())
        close = difflib.get_close_matches(flag.partition("=")[0], known, n=1)
        return f"; did you mean {close[0]}?" if close else ""


def add_commands(
    parser: argparse.ArgumentParser,
    table: Mapping[str, Command],
    *,
    dest: str,
    metavar: str,
) -> None:
    """Let a parser take one of several commands.

    Args:
      parser: gets them.
      table: the commands by name.
      dest: where the parsed flags keep the name.
      metavar: what help and errors call the name.
    """
    commands = parser.add_subparsers(
        dest=dest, required=True, metavar=metavar, parser_class=CommandParser
    )
    for name, command in table.items():
        commands.add_parser(name, help=command.help, module=command.module)
