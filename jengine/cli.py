"""The command `jengine`: `generate` streams answers, `compile` surveys a card.

Answers and tables go to stdout, everything else to stderr. It exits with 2 and one
line for input that is refused, with 130 after Ctrl-C. It uses the public interface of
the library only, and is the one place that may read environment variables: it hands
them to the process that compiles.
"""

import argparse
import contextlib
import dataclasses
import io
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import jengine
from jengine.cli_compile import add_compile_command, run_compile
from jengine.cli_options import (
    DEFAULT_MAX_TOKENS,
    add_engine_flags,
    add_sampling_flags,
    take_engine,
    take_sampling,
)
from jengine.cli_output import (
    AnswerPrinter,
    TextStream,
    Totals,
    format_logprobs,
    format_run,
)
from jengine.config import EngineConfig
from jengine.outputs import RequestOutput
from jengine.sampling_params import RequestOutputKind, SamplingParams

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
EXIT_PIPE_CLOSED = 141  # 128 + SIGPIPE


class BadInputError(ValueError):
    """The command line, or a file that it names, cannot be used."""


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
    _add_input_flags(generate)
    add_sampling_flags(generate)
    add_engine_flags(generate)
    add_compile_command(commands)
    return parser


def _add_input_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("input")
    group.add_argument(
        "--model",
        help="folder or .gguf file of a checkpoint, or its name on the hub; without it"
        " a tiny demo checkpoint, which is not trained, is written and used",
    )
    group.add_argument(
        "--prompt", action="append", default=[], help="may be given several times"
    )
    group.add_argument(
        "--prompts-file", metavar="FILE", help="one prompt a line; - is stdin"
    )
    group.add_argument(
        "--chat",
        action="store_true",
        help="take each prompt for a user's message and apply the chat template",
    )


def _run(flags: argparse.Namespace) -> int:
    if flags.command == "compile":
        return run_compile(flags, os.environ)
    return _generate(flags)


def _generate(flags: argparse.Namespace) -> int:
    texts = _read_prompts(flags)
    given, options = take_sampling(flags), take_engine(flags)
    _check_before_loading(given, options)
    with _model_path(flags.model) as model:
        llm = _load(model, options)
        params = _make_params(llm, given)
        prompts: Sequence[Any] = texts
        if flags.chat:
            prompts = _render_chats(llm, texts, options.get("chat_template"))
        started = time.perf_counter()
        totals = stream_answers(llm.llm_engine, prompts, texts, params, sys.stdout)
        seconds = time.perf_counter() - started
        sys.stderr.write(format_run(totals, seconds, llm.llm_engine.stats))
    return 0


def _check_before_loading(given: dict[str, Any], options: dict[str, Any]) -> None:
    """Refuse bad flags at once: loading a model takes a while."""
    fields: dict[str, Any] = {"max_tokens": DEFAULT_MAX_TOKENS}
    SamplingParams(**(fields | given))
    EngineConfig.from_options("unknown yet", options)


def _read_prompts(flags: argparse.Namespace) -> list[str]:
    prompts = [*flags.prompt, *_read_file(flags.prompts_file)]
    if not prompts:
        raise BadInputError("no prompt: give --prompt TEXT or --prompts-file FILE")
    return prompts


def _read_file(name: str | None) -> list[str]:
    if name is None:
        return []
    try:
        if name == "-":
            text = sys.stdin.read()
        else:
            text = pathlib.Path(name).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise BadInputError(f"{name} is not UTF-8 text: {error}") from error
    prompts = [line for line in text.split("\n") if line.strip()]
    if not prompts:
        raise BadInputError(f"{name} holds no prompt: write one a line")
    return prompts


@contextlib.contextmanager
def _model_path(asked: str | None) -> Iterator[str]:
    if asked is not None:
        yield asked
        return
    from jengine.testing.demo import write_demo_checkpoint

    with tempfile.TemporaryDirectory(prefix="jengine-demo-") as folder:
        sys.stderr.write(
            "no --model given: using a tiny demo checkpoint, written just now."
            " It is not trained; its answers mean nothing.\n"
        )
        yield str(write_demo_checkpoint(folder))


def _load(model: str, options: dict[str, Any]) -> Any:
    from jengine.llm import LLM

    return LLM(model, **options)


def _make_params(llm: Any, given: dict[str, Any]) -> SamplingParams:
    """Lay the flags over what the checkpoint proposes."""
    fields: dict[str, Any] = {"max_tokens": DEFAULT_MAX_TOKENS}
    fields |= given
    proposed = llm.get_default_sampling_params()
    return dataclasses.replace(proposed, output_kind=RequestOutputKind.DELTA, **fields)


def _render_chats(llm: Any, texts: Sequence[str], template: str | None) -> list[Any]:
    """Turn each text into the ids of a conversation that asks for an answer."""
    from jengine.text.chat import read_chat_template, render

    tokenizer = llm.llm_engine.tokenizer
    if tokenizer is None:
        raise BadInputError("--chat needs a tokenizer: leave out --skip-tokenizer-init")
    written = None if template is None else read_chat_template(template)
    chats = [[{"role": "user", "content": text}] for text in texts]
    return [render(tokenizer, chat, chat_template=written) for chat in chats]


def stream_answers(
    engine: Any,
    prompts: Sequence[Any],
    titles: Sequence[str],
    params: SamplingParams,
    stream: TextStream,
) -> Totals:
    """Run all prompts at once and write their answers as they grow.

    Args:
      engine: the `llm_engine` of an `LLM`.
      prompts: what is sent to the engine.
      titles: what is shown of each prompt, where there are several.
      params: how to sample; its output kind must be DELTA.
      stream: where the answers go.

    Raises:
      ValueError: a prompt is refused; then none is run.
    """
    for index, prompt in enumerate(prompts):
        engine.add_request(str(index), prompt, params)
    printer, totals = AnswerPrinter(titles, stream), Totals()
    details = [""] * len(prompts)
    while engine.has_unfinished_requests():
        for output in engine.step():
            totals = totals.plus(output)
            _print_output(output, printer, details)
    return totals


def _print_output(
    output: RequestOutput, printer: AnswerPrinter, details: list[str]
) -> None:
    index, completion = int(output.request_id), output.outputs[0]
    details[index] += format_logprobs(completion)
    printer.add(index, completion.text)
    if output.finished:
        printer.finish(index, details[index])
