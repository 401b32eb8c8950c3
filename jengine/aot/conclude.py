"""What is concluded of a program that was not compiled, from up to five that were.

See `sizes` for which these are. Arguments and results follow exactly from the sizes.
Temporary memory is interpolated between the compiled sizes around. Of launches and
copies of the cache the larger number of the two counts; launches of the layers are
taken to be those of the plainest variant. Kernels are those of the next larger size,
whose tiles are the same. Standard library only.
"""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from jengine.aot.facts import ProgramFacts


class Basis(NamedTuple):
    """What a program's figures follow from; programs are given by their numbers.

    Attributes:
      below: the plainest program in the next smaller compiled size, or in its own.
      above: the plainest program in the next larger compiled size, or in its own.
      share: where the program's size lies between them, from 0 to 1.
      like: the same variant in the largest size, or what of it is compiled.
      reporting: what reports log-probabilities, and is plain otherwise, in the largest
        size, if `like` lacks that; else `largest`.
      largest: the plainest program in the largest size.
      rows_share: the program's rows, of those in the largest size.
      argument_bytes_less: what its arguments take less than those of `like`.
      output_bytes_less: what its results take less.
    """

    below: int
    above: int
    share: float
    like: int
    reporting: int
    largest: int
    rows_share: float
    argument_bytes_less: int
    output_bytes_less: int

    @property
    def numbers(self) -> tuple[int, ...]:
        """The programs, each once."""
        largest = (self.like, self.reporting, self.largest)
        return tuple(dict.fromkeys((self.above, self.below, *largest)))


def conclude(basis: Basis, facts: Mapping[int, ProgramFacts]) -> ProgramFacts:
    """Return the figures of a program that was not compiled.

    Args:
      basis: what they follow from.
      facts: of compiled programs by number, all with equally many layers.
    """
    below, above = facts[basis.below], facts[basis.above]
    like, largest = facts[basis.like], facts[basis.largest]
    added = (like, facts[basis.reporting])
    more = sum(one.temp_bytes - largest.temp_bytes for one in added)
    between = below.temp_bytes + basis.share * (above.temp_bytes - below.temp_bytes)
    copies = sum(max(0, one.kv_copies - largest.kv_copies) for one in added)
    launches = sum(_outside_layers(one) - _outside_layers(largest) for one in added)
    busier = max(below, above, key=lambda program: program.launches)
    return dataclasses.replace(
        like,
        compile_s=0.0,
        argument_bytes=like.argument_bytes - basis.argument_bytes_less,
        output_bytes=like.output_bytes - basis.output_bytes_less,
        temp_bytes=max(0, round(between + more * basis.rows_share)),
        kv_copies=max(below.kv_copies, above.kv_copies) + copies,
        launches=busier.launches + launches,
        launches_per_layer=busier.launches_per_layer,
        kernels=above.kernels,
    )


def _outside_layers(facts: ProgramFacts) -> int:
    """Return the launches before and after all layers."""
    return facts.launches - facts.layers * (facts.launches_per_layer or 0)
