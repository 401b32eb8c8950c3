"""What was found of a program, and what follows for the model of full depth.

Programs are alike in every layer, so that one with two layers tells what one more
layer adds. `scale` adds the layers that were left out; two programs that are compiled
at full depth show whether it adds rightly. Standard library only.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KernelFacts:
    """One Pallas kernel of a program.

    Attributes:
      name: of the kernel.
      registers: of a thread.
      spill_bytes: bytes that a thread spills: stores and loads together.
      shared_bytes: shared memory of a block.
      instructions: how often instructions that tell how it works occur.
    """

    name: str
    registers: int
    spill_bytes: int
    shared_bytes: int
    instructions: Mapping[str, int]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProgramFacts:
    """One compiled program, per card.

    Attributes:
      layers: decoder layers that it was compiled with; 0 for a sampling program.
      compile_s: seconds of lowering and compiling, while others compile as well.
      argument_bytes: of all arguments.
      output_bytes: of all results, those in donated arguments included.
      temp_bytes: of what exists while it runs.
      aliased_bytes: of results that lie in donated arguments.
      kv_copies: instructions that copy keys or values of a whole layer.
      launches: operations started on the device; a loop's body counts once.
      launches_per_layer: None where no layers are seen.
      collectives: how many there are of each kind.
      kernels: the Pallas kernels.
    """

    layers: int
    compile_s: float
    argument_bytes: int
    output_bytes: int
    temp_bytes: int
    aliased_bytes: int
    kv_copies: int
    launches: int
    launches_per_layer: int | None
    collectives: Mapping[str, int]
    kernels: tuple[KernelFacts, ...]

    @property
    def own_bytes(self) -> int:
        """Bytes beside the arguments: what must be free for the program to run."""
        return self.temp_bytes + self.output_bytes - self.aliased_bytes

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "ProgramFacts":
        """Read what `to_dict` returned."""
        values: dict[str, Any] = dict(fields)
        values["kernels"] = tuple(KernelFacts(**kernel) for kernel in values["kernels"])
        return cls(**values)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LayerCost:
    """What one more layer adds to a program's arguments, per card.

    Attributes:
      weight_bytes: its parameters.
      kv_bytes: its keys and values.
      collectives: how many there are of each kind.
    """

    weight_bytes: int
    kv_bytes: int
    collectives: Mapping[str, int]


def scale(facts: ProgramFacts, num_layers: int, layer: LayerCost) -> ProgramFacts:
    """Return what the program would be with all layers.

    Temporary memory is taken as it is: layers run one after another and use the same.
    A program in which no layers are seen is returned as it is.

    Args:
      facts: as compiled.
      num_layers: layers of the model.
      layer: what one adds.
    """
    more = num_layers - facts.layers
    if not facts.layers or not more or facts.launches_per_layer is None:
        return facts
    added = more * layer.kv_bytes
    aliased = more * min(layer.kv_bytes, facts.aliased_bytes // facts.layers)
    collectives = {
        kind: count + more * layer.collectives.get(kind, 0)
        for kind, count in facts.collectives.items()
    }
    return dataclasses.replace(
        facts,
        layers=num_layers,
        argument_bytes=facts.argument_bytes + more * layer.weight_bytes + added,
        output_bytes=facts.output_bytes + added,
        aliased_bytes=facts.aliased_bytes + aliased,
        kv_copies=facts.kv_copies * num_layers // facts.layers,
        launches=facts.launches + more * facts.launches_per_layer,
        collectives=collectives,
    )
