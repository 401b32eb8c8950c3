"""`jengine chat`: a conversation in the terminal, or through a pipe.

Only what the model says goes to stdout; prompts, echoes and remarks go to stderr.
"""

import argparse
import contextlib
import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

from jengine.cli_model import BadInputError, add_model_flag, load
from jengine.cli_options import (
    add_engine_flags,
    add_sampling_flags,
    take_engine,
    take_sampling,
)
from jengine.cli_output import TextStream
from jengine.errors import JengineError
from jengine.sampling_params import SamplingParams

PROMPT = "> "
HELP = """\
/system TEXT  tell the model TEXT first, from now on; without TEXT nothing
/reset        forget what was said
/help         show this
/exit         leave, as the end of input does
Ctrl-C        stop an answer
Everything else is a message to the model. A message that begins with / needs a space
before it.
"""

Message = dict[str, str]


@runtime_checkable
class Source(Protocol):
    """Where lines come from, as from `sys.stdin`."""

    def readline(self) -> str:
        """Return the next line with its end, "" if there is none."""
        ...

    def isatty(self) -> bool:
        """Return whether somebody types them."""
        ...


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.description = (
        "Talk to a model. Ctrl-C stops an answer; /help lists what can be typed besides"
        " messages."
    )
    group = add_model_flag(parser)
    group.add_argument("--system", metavar="TEXT", help="what the model is told first")
    add_sampling_flags(parser, max_tokens="as many as fit")
    add_engine_flags(parser)


def run(flags: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Hold a conversation and return the exit status.

    Args:
      flags: the parsed command line.
      environment: variables of this process.

    Raises:
      BadInputError: a flag that makes no sense in a conversation.
      JengineError: the model or a flag cannot be used.
    """
    del environment  # nothing is started
    sampling, options = {"max_tokens": None} | take_sampling(flags), take_engine(flags)
    if sampling.get("n", 1) != 1:
        raise BadInputError(
            f"--n {sampling['n']}: a conversation has one answer at a time"
        )
    if options.get("skip_tokenizer_init"):
        raise BadInputError("chat needs a tokenizer: leave out --skip-tokenizer-init")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    llm, params = load(flags.model, sampling, options)
    session = ChatSession(llm, params, flags.system, sys.stdout, sys.stderr)
    session.run(read_lines(sys.stdin, sys.stdout, sys.stderr))
    return 0


def read_lines(
    source: Source, answers: TextStream, remarks: TextStream
) -> Iterator[str]:
    """Yield what the user writes, line by line, until the end of input.

    Args:
      source: asked for lines; at a terminal `input` is used, which can edit them.
      answers: where the model's answers go.
      remarks: shows that a line is awaited, and lines that no terminal has shown.
    """
    if source.isatty():
        remarks.write("/help lists what can be typed besides messages.\n")
        yield from _typed_lines(answers, remarks)
        return
    while line := source.readline():
        remarks.write(f"{PROMPT}{line.rstrip()}\n")
        remarks.flush()
        yield line.rstrip()


def _typed_lines(answers: TextStream, remarks: TextStream) -> Iterator[str]:
    with contextlib.suppress(ImportError):  # not on every system
        import readline  # noqa: F401 - makes `input` an editor
    # `input` writes its prompt where the answers go; a file shall not have it.
    shown = PROMPT if getattr(answers, "isatty", bool)() else ""
    while True:
        try:
            yield input(shown)
        except EOFError:
            remarks.write("\n")
            return
        except KeyboardInterrupt:
            remarks.write("\n/exit or Ctrl-D leaves.\n")


class ChatSession:
    """One conversation: what was said, and what the model is told first."""

    def __init__(
        self,
        llm: Any,
        params: SamplingParams,
        system: str | None,
        answers: TextStream,
        remarks: TextStream,
    ) -> None:
        """Begin a conversation.

        Args:
          llm: an `LLM`.
          params: how to sample.
          system: the system message, if any.
          answers: where the model's answers go.
          remarks: where everything else goes.
        """
        self._llm = llm
        self._params = params
        self._system = system or ""
        self._said: tuple[Message, ...] = ()
        self._answers = answers
        self._remarks = remarks
        self._commands: Mapping[str, Callable[[str], None]] = {
            "/system": self._set_system,
            "/reset": self._reset,
            "/help": lambda _: self._remark(HELP.rstrip()),
        }

    def run(self, lines: Iterable[str]) -> None:
        """Answer line by line, to the last one or to /exit."""
        for line in lines:
            command, _, rest = line.partition(" ")
            if command == "/exit":
                return
            if command in self._commands:
                self._commands[command](rest.strip())
            elif command.startswith("/"):
                self._remark(f"unknown: {command}; /help lists what there is")
            elif line.strip():
                self._answer(line.strip())

    def _set_system(self, text: str) -> None:
        self._system = text

    def _reset(self, _: str) -> None:
        self._said = ()

    def _answer(self, text: str) -> None:
        """Answer a message; both are kept unless nothing was said to it."""
        asked = (*self._said, {"role": "user", "content": text})
        told = [{"role": "system", "content": self._system}] if self._system else []
        pieces: list[str] = []
        try:
            end = self._stream([*told, *asked], pieces)
        except JengineError as error:  # a refusal, which costs only this message
            self._remark(f"error: {' '.join(str(error).split())}")
            return
        except KeyboardInterrupt:
            end = "stopped"
        self._write("\n")
        answer = "".join(pieces)
        if answer:
            self._said = (*asked, {"role": "assistant", "content": answer})
        if end is not None:
            self._remark(f"({end})")

    def _stream(self, messages: list[Message], pieces: list[str]) -> str | None:
        """Write an answer as it grows and note its pieces.

        Returns:
          What is remarkable about its end.
        """
        reason = None
        with contextlib.closing(
            self._llm.stream_chat(messages, self._params)
        ) as stream:
            for output in stream:
                (done,) = output.outputs
                reason = done.finish_reason
                pieces.append(done.text)
                self._write(done.text)
        if reason == "length":
            return "cut off: more is not allowed by --max-tokens or does not fit"
        return None if reason == "stop" else f"ended: {reason}"

    def _write(self, text: str) -> None:
        self._answers.write(text)
        self._answers.flush()

    def _remark(self, text: str) -> None:
        self._remarks.write(f"{text}\n")
        self._remarks.flush()
