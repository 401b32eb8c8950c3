"""From what the workers told to a report: one record a program, and a summary.

Standard library only.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from jengine.aot.conclude import Basis, conclude
from jengine.aot.facts import LayerCost, ProgramFacts, scale
from jengine.aot.supervisor import Findings

# Of a program with fewer layers, and of one of another size: what must be the same.
_SAME_LAYERS = ("argument_bytes", "aliased_bytes", "kv_copies", "launches")
_SAME_SIZES = ("argument_bytes", "output_bytes", "aliased_bytes", "collectives")
_KERNEL_SIZES = ("name", "spill_bytes", "shared_bytes")
_TOLERANCE = 0.125
_LAUNCH_SLACK, _TEMP_SLACK = 2, 4 * 2**20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A program that was compiled, beside what was concluded of it without that.

    Attributes:
      name: of the program.
      found: what XLA made of it.
      concluded: what followed from fewer layers, or from other sizes.
      of_size: whether it followed from other sizes.
    """

    name: str
    found: ProgramFacts
    concluded: ProgramFacts
    of_size: bool = False

    @property
    def holds(self) -> bool:
        """Whether what a report says of the program is true.

        From fewer layers all follows exactly. From other sizes launches follow within
        an eighth or two, and temporary memory within an eighth or 4 MiB.
        """
        found, concluded = self.found, self.concluded
        names = _SAME_SIZES if self.of_size else _SAME_LAYERS
        if any(getattr(found, name) != getattr(concluded, name) for name in names):
            return False
        if not self.of_size:
            return True
        return (
            found.kv_copies <= concluded.kv_copies
            and _kernel_sizes(found) == _kernel_sizes(concluded)
            and _is_close(found.launches, concluded.launches, _LAUNCH_SLACK)
            and _is_close(found.temp_bytes, concluded.temp_bytes, _TEMP_SLACK)
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that a survey found.

    Attributes:
      survey: of the model, the card and the pool, see `overview.describe_survey`.
      programs: one record each, in the survey's order. "concluded_from" names the
        programs that its figures follow from, if it was not compiled. Where there are
        no figures there is an "error".
      proofs: programs that were compiled to check what is concluded.
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
                    "from": "other sizes" if proof.of_size else "fewer layers",
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
    programs = survey["programs"]
    names = [program["name"] for program in programs]
    bases = {
        number: Basis(**program["basis"])
        for number, program in enumerate(programs)
        if program["basis"] is not None
    }
    scaled, full = _figures(findings)
    alike = full | scaled  # which have equally many layers
    concluded = {
        number: conclude(basis, alike)
        for number, basis in bases.items()
        if alike.keys() >= set(basis.numbers)
    }
    # What is known best comes last.
    records = {n: _without_figures(basis, alike, names) for n, basis in bases.items()}
    records |= {
        n: _record(facts, bases[n], names) | {"compile_s": None}
        for n, facts in concluded.items()
    }
    records |= {job.number: {"error": m} for job, m in findings.failures.items()}
    records |= {n: _record(facts, None, names) for n, facts in (scaled | full).items()}
    return Report(
        survey=survey,
        programs=tuple(
            {name: value for name, value in program.items() if name != "basis"}
            | records.get(number, {"error": "was not compiled"})
            for number, program in enumerate(programs)
        ),
        proofs=(
            *_proofs(names, full, scaled, of_size=False),
            *_proofs(names, alike, concluded, of_size=True),
        ),
    )


def _figures(
    findings: Findings,
) -> tuple[dict[int, ProgramFacts], dict[int, ProgramFacts]]:
    """Return what was found of programs by their numbers.

    Returns:
      What those that were compiled with few layers would be with all, and what those
      are that were compiled with all.
    """
    survey = findings.survey
    layer, layers = LayerCost(**survey["layer"]), survey["num_layers"]
    facts = findings.facts.items()
    scaled = {j.number: scale(f, layers, layer) for j, f in facts if not j.full}
    return scaled, {j.number: f for j, f in facts if j.full}


def _record(
    facts: ProgramFacts, basis: Basis | None, names: Sequence[str]
) -> dict[str, Any]:
    numbers = () if basis is None else basis.numbers
    return facts.to_dict() | {
        "own_bytes": facts.own_bytes,
        "concluded_from": [names[number] for number in numbers],
    }


def _without_figures(
    basis: Basis, known: Mapping[int, ProgramFacts], names: Sequence[str]
) -> dict[str, Any]:
    missing = [names[number] for number in basis.numbers if number not in known]
    return {"error": f"would follow from {', '.join(missing)}: no figures of that"}


def _proofs(
    names: Sequence[str],
    found: Mapping[int, ProgramFacts],
    concluded: Mapping[int, ProgramFacts],
    *,
    of_size: bool,
) -> tuple[Proof, ...]:
    return tuple(
        Proof(name=names[n], found=found[n], concluded=facts, of_size=of_size)
        for n, facts in concluded.items()
        if n in found
    )


def _is_close(found: int, concluded: int, slack: int) -> bool:
    return abs(found - concluded) <= max(slack, _TOLERANCE * found)


def _kernel_sizes(facts: ProgramFacts) -> list[tuple[Any, ...]]:
    return [
        tuple(getattr(kernel, name) for name in _KERNEL_SIZES)
        for kernel in facts.kernels
    ]
