"""Typed reading of a Hugging Face config: an error always names the key.

A present key whose value is null counts as missing, as it does in transformers.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from models.errors import ModelConfigError


@dataclasses.dataclass(frozen=True, slots=True)
class ConfigFields:
    """A mapping with typed getters.

    Attributes:
      values: the keys and values as read from JSON.
      prefix: what to put before a key in messages, such as "rope_parameters.".
    """

    values: Mapping[str, Any]
    prefix: str = ""

    def has(self, key: str) -> bool:
        """Return whether the key is present and not null."""
        return self.values.get(key) is not None

    def integer(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """Return an integer of at least `least`.

        Raises:
          ModelConfigError: if it is missing without a default, or is none.
        """
        value = self._value(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.wrong(key, f"an integer of at least {least}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Return a positive finite number.

        Raises:
          ModelConfigError: if it is missing without a default, or is none.
        """
        value = self._value(key, default)
        if (
            not isinstance(value, int | float)
            or isinstance(value, bool)
            or not math.isfinite(value)
            or value <= 0
        ):
            raise self.wrong(key, "a positive number")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """Return a boolean.

        Raises:
          ModelConfigError: if the value is none.
        """
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """Return a string.

        Raises:
          ModelConfigError: if it is missing without a default, or is none.
        """
        value = self._value(key, default)
        if not isinstance(value, str):
            raise self.wrong(key, "a string")
        return value

    def mapping(self, key: str) -> Mapping[str, Any]:
        """Return an object, empty where the key is missing.

        Raises:
          ModelConfigError: if the value is none.
        """
        value = self._value(key, {})
        if not isinstance(value, Mapping):
            raise self.wrong(key, "an object")
        return value

    def sequence(self, key: str) -> tuple[Any, ...]:
        """Return a list as a tuple, empty where the key is missing.

        Raises:
          ModelConfigError: if the value is none.
        """
        value = self._value(key, ())
        if not isinstance(value, list | tuple):
            raise self.wrong(key, "a list")
        return tuple(value)

    def wrong(self, key: str, allowed: str) -> ModelConfigError:
        """Return the error for a value that is not allowed."""
        return ModelConfigError(
            f"config: {self.prefix}{key} is {self.values.get(key)!r}; "
            f"it must be {allowed}"
        )

    def _value(self, key: str, default: object) -> object:
        value = self.values.get(key)
        if value is not None:
            return value
        if default is None:
            raise ModelConfigError(
                f"config: {self.prefix}{key} is missing; the model cannot be built "
                "without it, so take the complete config.json of the checkpoint"
            )
        return default
