"""The command `jengine`: `generate`, `chat`, `bench`, `compile`, `doctor`.

Answers and tables go to stdout, everything else to stderr. It exits with 2 and one
line for input that is refused, with 130 after Ctrl-C. It uses the public interface of
the library only, and is the one place that may read environment variables: it hands
them to the process that compiles.
"""

import argparse
import dataclasses
import io
import os
import sys
import time
from collections.abc import Sequence
from typing import Any, NoReturn

import jengine
from jengine.cli_bench import add_bench_command, run_bench
from jengine.cli_chat import ChatSession, read_lines
from jengine.cli_compile import add_compile_command, run_compile
from jengine.cli_doctor import add_doctor_command, run_doctor
from jengine.cli_generate import (
    BadInputError,
    add_prompt_flags,
    read_prompts,
    render_chats,
    stream_answers,
)
from jengine.cli_options import (
    add_engine_flags,
    add_sampling_flags,
    take_engine,
    take_sampling,
)
from jengine.cli_output import format_run
from jengine.config import EngineConfig
from jengine.demo_model import DEMO_MODEL
from jengine.sampling_params import RequestOutputKind, SamplingParams

DEFAULT_MAX_TOKENS = 128  # of `generate`; vLLM's 16 is too short to read
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
EXIT_PIPE_CLOSED = 141  # 128 + SIGPIPE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may lack characters
    try:
        return _run(_make_parser().parse_args(arguments))
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


class _Parser(argparse.ArgumentParser):
    """Reports a wrong command line in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_BAD_INPUT, f"jengine: error: {message} (see {self.prog} -h)\n")


def _make_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="jengine", description="LLM inference in JAX.")
    parser.add_argument(
        "--version", action="version", version=f"jengine {jengine.__version__}"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    generate = commands.add_parser(
        "generate",
        help="continue prompts with a model",
        description="Continue prompts with a model; text goes to stdout as it grows.",
        allow_abbrev=False,
    )
    add_prompt_flags(_add_model_flag(generate))
    add_sampling_flags(generate, max_tokens=str(DEFAULT_MAX_TOKENS))
    add_engine_flags(generate)
    chat = commands.add_parser(
        "chat",
        help="talk to a model",
        description="Talk to a model. Ctrl-C stops an answer; /help lists what can be"
        " typed besides messages.",
        allow_abbrev=False,
    )
    group = _add_model_flag(chat)
    group.add_argument("--system", metavar="TEXT", help="what the model is told first")
    add_sampling_flags(chat, max_tokens="as many as fit")
    add_engine_flags(chat)
    add_compile_command(commands)
    add_bench_command(commands)
    add_doctor_command(commands)
    return parser


def _add_model_flag(parser: argparse.ArgumentParser) -> Any:
    group = parser.add_argument_group("input")
    group.add_argument(
        "--model",
        help="folder or .gguf file of a checkpoint, or its name on the hub; without it"
        " the demo model that ships with jengine is used",
    )
    return group


def _run(flags: argparse.Namespace) -> int:
    if flags.command == "compile":
        return run_compile(flags, os.environ)
    if flags.command == "bench":
        return run_bench(flags, os.environ)
    if flags.command == "doctor":
        return run_doctor(flags, os.environ)
    return _chat(flags) if flags.command == "chat" else _generate(flags)


def _generate(flags: argparse.Namespace) -> int:
    texts = read_prompts(flags)
    given = {"max_tokens": DEFAULT_MAX_TOKENS} | take_sampling(flags)
    options = take_engine(flags)
    _check_before_loading(given, options)
    llm = _load(_model_path(flags.model), options)
    params = _make_params(llm, given)
    prompts: Sequence[Any] = texts
    if flags.chat:
        prompts = render_chats(llm, texts, options.get("chat_template"))
    started = time.perf_counter()
    totals = stream_answers(llm.llm_engine, prompts, texts, params, sys.stdout)
    seconds = time.perf_counter() - started
    sys.stderr.write(format_run(totals, seconds, llm.llm_engine.stats))
    return 0


def _chat(flags: argparse.Namespace) -> int:
    given, options = {"max_tokens": None} | take_sampling(flags), take_engine(flags)
    if given.get("n", 1) != 1:
        raise BadInputError(
            f"--n {given['n']}: a conversation has one answer at a time"
        )
    if options.get("skip_tokenizer_init"):
        raise BadInputError("chat needs a tokenizer: leave out --skip-tokenizer-init")
    _check_before_loading(given, options)
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    llm = _load(_model_path(flags.model), options)
    params = _make_params(llm, given)
    session = ChatSession(llm, params, flags.system, sys.stdout, sys.stderr)
    session.run(read_lines(sys.stdin, sys.stdout, sys.stderr))
    return 0


def _check_before_loading(given: dict[str, Any], options: dict[str, Any]) -> None:
    """Refuse bad flags at once: loading a model takes a while."""
    SamplingParams(**given)
    EngineConfig.from_options("unknown yet", options)


def _model_path(asked: str | None) -> str:
    if asked is not None:
        return asked
    sys.stderr.write(
        "no --model given: using the demo model that ships with jengine, which is tiny"
        " and knows short stories only\n"
    )
    return DEMO_MODEL


def _load(model: str, options: dict[str, Any]) -> Any:
    from jengine.llm import LLM

    return LLM(model, **options)


def _make_params(llm: Any, given: dict[str, Any]) -> SamplingParams:
    """Lay the flags over what the checkpoint proposes."""
    proposed = llm.get_default_sampling_params()
    return dataclasses.replace(proposed, output_kind=RequestOutputKind.DELTA, **given)
