"""What is asked of a survey: plain values that cross to the worker as JSON."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

# The first layer has the step's preparation mixed in, the last the final norm.
DEFAULT_LAYERS = 3
DEFAULT_CONTEXT = 4096


class Job(NamedTuple):
    """A program to compile.

    Attributes:
      number: of the program in the survey.
      full: with all layers; else with as many as the survey asks for.
    """

    number: int
    full: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SurveyRequest:
    """A model, a card and the options of the engine that would run there.

    Attributes:
      model: how the model was named; for messages.
      config: content of its `config.json`.
      target: name of the card, see `targets`.
      options: fields of `EngineConfig`, as far as they were given.
      tensor_parallel_size: cards that share the model.
      layers: decoder layers of the programs that are compiled, from which figures of
        the whole follow; None compiles all layers of every program.
      all_sizes: compile every program; else some sizes, from which figures of the
        others follow.
      context: tokens of each row, for the bytes and operations of decode programs.
      save: folder that compiled programs are written to; None keeps none.
      only: what to compile; None compiles everything.
      threads: programs that XLA compiles at the same time.
    """

    model: str
    config: Mapping[str, Any]
    target: str
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    tensor_parallel_size: int = 1
    layers: int | None = DEFAULT_LAYERS
    all_sizes: bool = False
    context: int = DEFAULT_CONTEXT
    save: str | None = None
    only: tuple[Job, ...] | None = None
    threads: int = 2

    def to_json(self) -> str:
        """Return one line of JSON."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return json.dumps(fields | {"config": dict(self.config)}, default=dict)

    @classmethod
    def from_json(cls, text: str) -> "SurveyRequest":
        """Read what `to_json` wrote."""
        fields = json.loads(text)
        only = fields["only"]
        if only is not None:
            only = tuple(Job(*job) for job in only)
        return cls(**fields | {"only": only})
