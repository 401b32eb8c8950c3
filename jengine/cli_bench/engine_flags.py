"""The engine that a command measures: its flags, and how it is made."""

import argparse
import types
from collections.abc import Mapping
from typing import Any

from jengine.cli_options import add_engine_flags, take_engine
from jengine.config import EngineConfig
from jengine.demo_model import DEMO_MODEL


def add_model_flags(parser: argparse.ArgumentParser, *, note: str = "") -> None:
    """Add `--model` and every option of the engine.

    Args:
      parser: of the command.
      note: what else the help of `--model` says.
    """
    parser.add_argument(
        "--model",
        default=DEMO_MODEL,
        help="folder or .gguf file of a checkpoint, or its name on the hub; without it"
        f" the demo model that ships with jengine is used{note}",
    )
    add_engine_flags(parser)


def make_llm(
    flags: argparse.Namespace,
    *,
    defaults: Mapping[str, Any] = types.MappingProxyType({}),
    overrides: Mapping[str, Any] = types.MappingProxyType({}),
    is_async: bool = False,
) -> Any:
    """Return an `LLM`, or an `AsyncLLM`, with the options of the command line.

    Args:
      flags: see `add_model_flags`.
      defaults: options of the engine where the command line has none.
      overrides: options of the engine whatever the command line has.
      is_async: which of the two.

    Raises:
      JengineError: the model or an option cannot be used.
    """
    options = {**defaults, **take_engine(flags), **overrides}
    EngineConfig.from_options(flags.model, options)
    if is_async:
        from jengine.async_llm import AsyncLLM

        return AsyncLLM(flags.model, **options)
    from jengine.llm import LLM

    return LLM(flags.model, **options)
