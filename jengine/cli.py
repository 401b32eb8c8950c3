"""The command `jengine`: `generate`, `chat`, `bench`, `compile`, `doctor`.

Answers and tables go to stdout, everything else to stderr. It exits with 2 and one
line for input that is refused, with 130 after Ctrl-C. It uses the public interface of
the library only, and is the one place that may read environment variables: it hands
them to the process that compiles.
"""

import io
import os
import sys
from collections.abc import Mapping, Sequence

import jengine
from jengine.cli_commands import EXIT_BAD_INPUT, Command, Parser, add_commands

EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
EXIT_PIPE_CLOSED = 141  # 128 + SIGPIPE

COMMANDS: Mapping[str, Command] = {
    "generate": Command("continue prompts with a model", "jengine.cli_generate"),
    "chat": Command("talk to a model", "jengine.cli_chat"),
    "compile": Command(
        "compile a model's programs for a card, without one", "jengine.cli_compile"
    ),
    "bench": Command("measure speed", "jengine.cli_bench.commands"),
    "doctor": Command(
        "what this machine has, and what is missing", "jengine.cli_doctor"
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may lack characters
    try:
        flags = _make_parser().parse_args(arguments)
        return flags.run(flags, os.environ)
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted\n")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE_CLOSED
    except (ValueError, OSError) as error:
        if not _is_about_input(error):
            raise
        sys.stderr.write(f"jengine: error: {' '.join(str(error).split())}\n")
        return EXIT_BAD_INPUT


def _is_about_input(error: Exception) -> bool:
    """Tell refusals, raised on purpose, from bugs, which need their traceback."""
    ours = type(error).__module__.partition(".")[0] in ("jengine", "models")
    return ours or isinstance(error, OSError)


def _make_parser() -> Parser:
    parser = Parser(prog="jengine", description="LLM inference in JAX.")
    parser.add_argument(
        "--version", action="version", version=f"jengine {jengine.__version__}"
    )
    add_commands(parser, COMMANDS, dest="command", metavar="COMMAND")
    return parser
