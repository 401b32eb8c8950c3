"""Who `jengine bench serve` asks: a server by HTTP, or an engine of this process."""

import argparse
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple

from jengine.bench.bench_request import BenchRequest
from jengine.bench.datasets import unlike
from jengine.bench.serve.engine_target import EngineTarget
from jengine.bench.serve.http_target import Endpoint, HttpTarget, open_session
from jengine.bench.serve.target import Target
from jengine.cli_bench.dataset_flags import dataset_name_of, make_requests
from jengine.cli_bench.engine_flags import add_model_flags, make_llm
from jengine.cli_bench.flag_types import add_setting, count, json_object, positive
from jengine.cli_options import take_engine
from jengine.demo_model import DEMO_MODEL
from jengine.errors import InvalidValueError
from jengine.sampling_params import SamplingParams

BACKENDS = ("openai", "openai-chat", "jengine")
_ROUTES = {"openai": "/v1/completions", "openai-chat": "/v1/chat/completions"}
_VOCAB = 10_000  # ids that most models know
_OF_SERVERS = (
    "base_url", "endpoint", "served_model_name", "header", "extra_body", "insecure",
    "vocab_size",
)  # fmt: skip
_PARAMS = (
    "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty",
    "repetition_penalty",
)  # fmt: skip


class Asked(NamedTuple):
    """Who is asked, and what.

    Attributes:
      target: who.
      requests: those that count.
      warmups: as many as are sent before, at least one; of other ids, so that no
        prefix cache helps those that count.
    """

    target: Target
    requests: list[BenchRequest]
    warmups: list[BenchRequest]


def add_target_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the server, of the engine and of sampling."""
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default="openai",
        help="a server's completions or chats, or an engine of this process (openai)",
    )
    group = parser.add_argument_group("server", "not for --backend jengine")
    group.add_argument("--base-url", metavar="URL", help="in place of host and port")
    group.add_argument("--host", default="127.0.0.1")
    group.add_argument("--port", type=int, default=8000)
    group.add_argument("--endpoint", metavar="PATH", help="of the route")
    group.add_argument(
        "--served-model-name", metavar="NAME", help="if it is not that of --model"
    )
    add_setting(parser, "--header", "NAME=VALUE", "an HTTP header, for servers")
    group.add_argument(
        "--extra-body",
        type=json_object,
        default={},
        metavar="JSON",
        help="further fields of requests",
    )
    group.add_argument("--insecure", action="store_true", help="check no certificate")
    group.add_argument(
        "--request-timeout",
        type=positive,
        default=6 * 3600.0,
        metavar="SECONDS",
        help="of each request",
    )
    group.add_argument(
        "--vocab-size",
        type=count,
        metavar="N",
        help=f"random prompts have ids below it ({_VOCAB})",
    )
    group = parser.add_argument_group("sampling")
    group.add_argument(
        "--ignore-eos", action="store_true", help="outputs of full length"
    )
    for name in _PARAMS:
        kind = int if name == "top_k" else float
        group.add_argument("--" + name.replace("_", "-"), type=kind, metavar="X")
    add_model_flags(
        parser, note="; a server's must be named, and has no options of the engine"
    )


@contextlib.asynccontextmanager
async def open_target(flags: argparse.Namespace) -> AsyncIterator[Asked]:
    """Open a connection or an engine, and make the requests for it.

    Raises:
      JengineError: a flag makes no sense, or the model cannot be used.
    """
    _check_backend(flags)
    if flags.backend == "jengine":
        with make_llm(flags, is_async=True) as llm:
            params = SamplingParams(ignore_eos=flags.ignore_eos, **_params(flags))
            tokenizer = await llm.get_tokenizer()
            requests = make_requests(
                flags,
                vocab_size=llm.config.vocab_size,
                max_model_len=llm.config.max_model_len,
                encode=None if tokenizer is None else tokenizer.encode,
            )
            warmups = unlike(_first(flags, requests), vocab_size=llm.config.vocab_size)
            yield Asked(EngineTarget(llm, params), requests, warmups)
        return
    requests, warmups = _requests_for_server(flags)
    session = open_session(timeout_s=flags.request_timeout, verify=not flags.insecure)
    async with session:
        yield Asked(HttpTarget(session, make_endpoint(flags)), requests, warmups)


def make_endpoint(flags: argparse.Namespace) -> Endpoint:
    """Return where and how the flags say to ask."""
    base = flags.base_url or f"http://{flags.host}:{flags.port}"
    return Endpoint(
        url=base.rstrip("/") + (flags.endpoint or _ROUTES[flags.backend]),
        model=flags.served_model_name or flags.model,
        is_chat=flags.backend == "openai-chat",
        ignore_eos=flags.ignore_eos,
        headers=dict(flags.header),
        body={**_params(flags), **flags.extra_body},
    )


def _params(flags: argparse.Namespace) -> dict[str, Any]:
    given = {name: getattr(flags, name) for name in _PARAMS}
    return {name: value for name, value in given.items() if value is not None}


def _check_backend(flags: argparse.Namespace) -> None:
    """Refuse what the chosen backend would ignore or lacks.

    Raises:
      InvalidValueError: a flag is of another backend, or a server's model has no name.
    """
    if flags.backend == "jengine":
        given = {name: getattr(flags, name) for name in _OF_SERVERS}
        for name in (name for name, value in given.items() if value):
            raise InvalidValueError(
                "--" + name.replace("_", "-"), given[name], "given for servers only"
            )
        return
    # A tokenizer makes text for servers, too.
    for name, value in take_engine(flags).items():
        if name != "tokenizer":
            raise InvalidValueError(name, value, "given with --backend jengine only")
    if flags.model == DEMO_MODEL and flags.served_model_name is None:
        raise InvalidValueError(
            "model",
            None,
            "the server's, which is asked by this name and whose tokenizer makes"
            " prompts of text",
        )


def _requests_for_server(
    flags: argparse.Namespace,
) -> tuple[list[BenchRequest], list[BenchRequest]]:
    """Make requests and those before them.

    A tokenizer of ours stands for the server's where text is needed.
    """
    vocab_size = flags.vocab_size or _VOCAB
    is_chat = flags.backend == "openai-chat"
    if not is_chat and dataset_name_of(flags) != "sharegpt":
        requests = make_requests(flags, vocab_size=vocab_size, encode=None)
        return requests, unlike(_first(flags, requests), vocab_size=vocab_size)
    tokenizer = _load_tokenizer(flags)
    vocab_size = min(vocab_size, tokenizer.vocab_size)
    requests = make_requests(flags, vocab_size=vocab_size, encode=tokenizer.encode)
    warmups = unlike(_first(flags, requests), vocab_size=vocab_size)
    return (
        [with_text(one, tokenizer.decode) for one in requests],
        [with_text(one, tokenizer.decode) for one in warmups],
    )


def _first(
    flags: argparse.Namespace, requests: Sequence[BenchRequest]
) -> Sequence[BenchRequest]:
    return requests[: max(1, flags.num_warmups)]


def with_text(
    request: BenchRequest, decode: Callable[[Sequence[int]], str]
) -> BenchRequest:
    """Return a request whose prompt is known as text only."""
    text = request.text or decode(list(request.token_ids))
    return BenchRequest(
        text=text,
        prompt_tokens=request.prompt_tokens,
        output_tokens=request.output_tokens,
        arrival_s=request.arrival_s,
    )


def _load_tokenizer(flags: argparse.Namespace) -> Any:
    from jengine.checkpoint import open_checkpoint
    from jengine.text.tokenizer import load_tokenizer

    named = take_engine(flags).get("tokenizer")
    if named is not None:
        return load_tokenizer(named).hf
    checkpoint = open_checkpoint(flags.model, with_weights=False)
    return load_tokenizer(checkpoint.tokenizer_path, gguf_file=checkpoint.gguf_file).hf
