"""`jengine generate`: prompts from the command line or a file, answers as they grow."""

import argparse
import pathlib
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from jengine.cli_model import BadInputError, add_model_flag, load
from jengine.cli_options import (
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
    format_prompt_logprobs,
    format_run,
)
from jengine.outputs import RequestOutput
from jengine.sampling_params import SamplingParams

DEFAULT_MAX_TOKENS = 128  # vLLM's 16 is too short to read


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.description = (
        "Continue prompts with a model; text goes to stdout as it grows."
    )
    add_prompt_flags(add_model_flag(parser))
    add_sampling_flags(parser, max_tokens=str(DEFAULT_MAX_TOKENS))
    add_engine_flags(parser)


def run(flags: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Answer all prompts and return the exit status.

    Args:
      flags: the parsed command line.
      environment: variables of this process.

    Raises:
      BadInputError: there is no prompt, or no tokenizer for a chat.
      JengineError: the model, a flag or a prompt cannot be used.
    """
    del environment  # nothing is started
    texts = read_prompts(flags)
    sampling = {"max_tokens": DEFAULT_MAX_TOKENS} | take_sampling(flags)
    options = take_engine(flags)
    llm, params = load(flags.model, sampling, options)
    prompts: Sequence[Any] = texts
    if flags.chat:
        prompts = render_chats(llm, texts, options.get("chat_template"))
    started = time.perf_counter()
    totals = stream_answers(llm.llm_engine, prompts, texts, params, sys.stdout)
    seconds = time.perf_counter() - started
    sys.stderr.write(format_run(totals, seconds, llm.llm_engine.stats))
    return 0


def add_prompt_flags(group: argparse._ArgumentGroup) -> None:
    """Add the flags that say what is to be continued."""
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


def read_prompts(flags: argparse.Namespace) -> list[str]:
    """Return the prompts that were given.

    Raises:
      BadInputError: there are none, or the file cannot be read.
    """
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


def render_chats(llm: Any, texts: Sequence[str], template: str | None) -> list[Any]:
    """Turn each text into the ids of a conversation that asks for an answer.

    Raises:
      BadInputError: there is no tokenizer.
      ChatTemplateError: the template refuses a text.
    """
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
      titles: what is shown of each prompt, where there are several answers.
      params: how to sample; its output kind must be DELTA.
      stream: where the answers go.

    Raises:
      ValueError: a prompt is refused; then none is run.
    """
    for index, prompt in enumerate(prompts):
        engine.add_request(str(index), prompt, params)
    printer, totals = AnswerPrinter(titles, stream, params.n), Totals()
    details = [""] * len(prompts) * params.n
    while engine.has_unfinished_requests():
        for output in engine.step():
            totals = totals.plus(output)
            _print_output(output, printer, details, params.n)
    return totals


def _print_output(
    output: RequestOutput, printer: AnswerPrinter, details: list[str], n: int
) -> None:
    for completion in output.outputs:
        row = int(output.request_id) * n + completion.index
        if completion.index == 0:
            details[row] += format_prompt_logprobs(output)
        details[row] += format_logprobs(completion)
        printer.add(row, completion.text)
        if completion.finished():
            printer.finish(row, details[row])
