"""`RepetitionDetectionParams`: when an output that repeats itself ends.

The fields are vLLM's. Standard library only.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, cast, no_type_check

from jengine.errors import SamplingParamsError
from jengine.field_rules import Rule, apply_rules, integer


@dataclasses.dataclass(frozen=True, slots=True)
@no_type_check  # it checks its own fields
class RepetitionDetectionParams:
    """When an output goes round in circles and ends with reason "repetition".

    >>> RepetitionDetectionParams(max_pattern_size=20, min_count=4)
    RepetitionDetectionParams(max_pattern_size=20, min_pattern_size=1, min_count=4)

    Attributes:
      max_pattern_size: most tokens of what repeats.
      min_pattern_size: least tokens of it; 0 is 1.
      min_count: times that it must stand one after another, at least 2.

    Raises:
      SamplingParamsError: a value is not allowed.
    """

    max_pattern_size: int
    min_pattern_size: int = 1
    min_count: int = 2

    def __post_init__(self) -> None:
        """Check what was given."""
        given = {field: getattr(self, field) for field in _RULES}
        kept = apply_rules(_RULES, given, SamplingParamsError)
        for field, value in kept.items():
            object.__setattr__(self, field, value)
        object.__setattr__(self, "min_pattern_size", self.min_pattern_size or 1)
        if self.min_pattern_size > self.max_pattern_size:
            raise SamplingParamsError(
                "min_pattern_size",
                self.min_pattern_size,
                f"at most max_pattern_size = {self.max_pattern_size}",
            )


def repetition_rule() -> Rule:
    """Make the rule of a field that holds such parameters, or a dict of them."""

    def convert(value: object) -> object:
        if isinstance(value, RepetitionDetectionParams):
            return value
        return RepetitionDetectionParams(**cast("Mapping[str, Any]", value))

    return Rule("a RepetitionDetectionParams or a dict of its fields", convert)


_RULES = {
    "max_pattern_size": integer(1),
    "min_pattern_size": integer(0),
    "min_count": integer(2),
}
