"""What the doctor found, as frozen values for people and for JSON."""

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Fact:
    """One line of a report.

    Attributes:
      name: what it is about.
      value: what was found, in words.
      why: the reason, for what jengine decided; empty where there is none.
    """

    name: str
    value: str
    why: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """Something that is missing or wrong.

    Attributes:
      what: what was found, and what does not work because of it.
      remedy: the command or the step that mends it.
      stops: whether no model can be run before it is mended.
    """

    what: str
    remedy: str
    stops: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """What the doctor found.

    Attributes:
      sections: facts by the title that they stand under.
      problems: what is wrong, the worst first.
    """

    sections: Mapping[str, tuple[Fact, ...]]
    problems: tuple[Problem, ...]

    @property
    def can_run(self) -> bool:
        """Whether a model can be run here as things are."""
        return not any(problem.stops for problem in self.problems)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "can_run": self.can_run,
            "problems": [dataclasses.asdict(problem) for problem in self.problems],
            **{
                title: {fact.name: _plain(fact) for fact in facts}
                for title, facts in self.sections.items()
            },
        }


def _plain(fact: Fact) -> Any:
    return {"value": fact.value, "why": fact.why} if fact.why else fact.value
