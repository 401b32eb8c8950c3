"""What `generate` and `chat` share: which model is loaded, and how it samples."""

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from jengine.config import EngineConfig
from jengine.demo_model import DEMO_MODEL
from jengine.sampling_params import RequestOutputKind, SamplingParams


class BadInputError(ValueError):
    """The command line, or a file that it names, cannot be used."""


class Loaded(NamedTuple):
    """A model that is ready.

    Attributes:
      llm: an `LLM`.
      params: what the checkpoint proposes, and the flags over it; outputs are deltas.
    """

    llm: Any
    params: SamplingParams


def add_model_flag(parser: Any) -> Any:
    """Add `--model`; returns its group, for what else is put in."""
    group = parser.add_argument_group("input")
    group.add_argument(
        "--model",
        help="folder or .gguf file of a checkpoint, or its name on the hub; without it"
        " the demo model that ships with jengine is used",
    )
    return group


def load(
    model: str | None, sampling: Mapping[str, Any], options: Mapping[str, Any]
) -> Loaded:
    """Load a model; bad flags are refused at once, for that takes a while.

    Args:
      model: None is the demo model, and stderr says so.
      sampling: fields of `SamplingParams` that were given.
      options: those of `EngineConfig`.

    Raises:
      JengineError: the model or a flag cannot be used.
    """
    SamplingParams(**sampling)
    EngineConfig.from_options("unknown yet", options)
    if model is None:
        sys.stderr.write(
            "no --model given: using the demo model that ships with jengine, which is"
            " tiny and knows short stories only\n"
        )
    llm = _load(model or DEMO_MODEL, options)
    params = dataclasses.replace(
        llm.get_default_sampling_params(),
        output_kind=RequestOutputKind.DELTA,
        **sampling,
    )
    return Loaded(llm, params)


def _load(model: str, options: Mapping[str, Any]) -> Any:
    from jengine.llm import LLM

    return LLM(model, **options)
