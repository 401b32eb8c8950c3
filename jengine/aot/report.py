"""From what the workers told to a report: one record a program, and a summary.

Standard library only.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from jengine.aot.facts import LayerCost, ProgramFacts, scale
from jengine.aot.request import Job
from jengine.aot.supervisor import Findings


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A program at full depth beside what was concluded from fewer layers.

    Attributes:
      name: of the program.
      found: what XLA made of all layers.
      concluded: what the shallow program led to.
    """

    name: str
    found: ProgramFacts
    concluded: ProgramFacts

    @property
    def holds(self) -> bool:
        """Whether everything that a report says of the program is the same."""
        names = ("argument_bytes", "aliased_bytes", "kv_copies", "launches")
        return all(getattr(self.found, n) == getattr(self.concluded, n) for n in names)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that a survey found.

    Attributes:
      survey: of the model, the card and the pool, see `overview.describe_survey`.
      programs: one record each, in the survey's order; those that could not be
        compiled have an "error" in place of facts.
      proofs: programs that were compiled at full depth as well.
    """

    survey: Mapping[str, Any]
    programs: tuple[Mapping[str, Any], ...]
    proofs: tuple[Proof, ...]

    @property
    def failures(self) -> tuple[Mapping[str, Any], ...]:
        """Programs that could not be compiled."""
        return tuple(program for program in self.programs if "error" in program)

    @property
    def largest_own_bytes(self) -> int:
        """Most memory that a program needs beside parameters and cache."""
        return max((p.get("own_bytes", 0) for p in self.programs), default=0)

    @property
    def needed_bytes(self) -> int:
        """Memory of each card that is in use while the largest program runs."""
        survey = self.survey
        return survey["weight_bytes"] + survey["kv_bytes"] + self.largest_own_bytes

    @property
    def fits(self) -> bool:
        """Whether the card has so much memory."""
        return self.needed_bytes <= self.survey["memory_bytes"]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        survey = {
            k: v for k, v in self.survey.items() if k not in ("programs", "layer")
        }
        return survey | {
            "needed_bytes": self.needed_bytes,
            "fits": self.fits,
            "proofs": [
                {
                    "name": proof.name,
                    "holds": proof.holds,
                    "found": proof.found.to_dict(),
                    "concluded": proof.concluded.to_dict(),
                }
                for proof in self.proofs
            ],
            "programs": [dict(program) for program in self.programs],
        }


def make_report(findings: Findings) -> Report:
    """Put together what was found."""
    survey = findings.survey
    layer = LayerCost(**survey["layer"])
    layers = survey["num_layers"]
    scaled = {job: scale(facts, layers, layer) for job, facts in findings.facts.items()}
    names = [program["name"] for program in survey["programs"]]
    proofs = tuple(
        Proof(
            name=names[job.number],
            found=facts,
            concluded=scaled[Job(job.number, False)],
        )
        for job, facts in findings.facts.items()
        if job.full and Job(job.number, False) in scaled
    )
    programs = tuple(
        dict(described) | _found(number, scaled, findings.failures)
        for number, described in enumerate(survey["programs"])
    )
    return Report(survey=survey, programs=programs, proofs=proofs)


def _found(
    number: int,
    scaled: Mapping[Job, ProgramFacts],
    failures: Mapping[Job, str],
) -> dict[str, Any]:
    """Return what was found of a program, at full depth where that was compiled."""
    for job in (Job(number, True), Job(number, False)):
        if job in scaled:
            facts = scaled[job]
            return facts.to_dict() | {"own_bytes": facts.own_bytes}
    messages = [m for job, m in failures.items() if job.number == number]
    return {"error": messages[0] if messages else "was not compiled"}
