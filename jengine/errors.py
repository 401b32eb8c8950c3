"""The errors that jengine raises on purpose, all of them kinds of `ValueError`.

A value that is refused says which field it was, what was found, what would have been
allowed and, where there is one, the way out. This module owns the wording of that
message; each check decides only what to put in it. Standard library only.
"""


class JengineError(ValueError):
    """Root of every error that jengine raises on purpose."""


class InvalidValueError(JengineError):
    """A value that the user gave lies outside what is allowed.

    >>> raise InvalidValueError("top_k", 1.5, "an integer")
    Traceback (most recent call last):
        ...
    jengine.errors.InvalidValueError: top_k is 1.5; allowed: an integer

    Attributes:
      field: name of the option or argument.
      found: the value that was given.
      allowed: the values that would have been accepted, in words.
      hint: the way out, a sentence; None where `allowed` already says it.
    """

    def __init__(
        self, field: str, found: object, allowed: str, hint: str | None = None
    ) -> None:
        """Keep the four parts and build the one-line message from them."""
        self.field = field
        self.found = found
        self.allowed = allowed
        self.hint = hint
        way_out = "" if hint is None else f". {hint}"
        super().__init__(f"{field} is {shorten(found)}; allowed: {allowed}{way_out}")

    def __reduce__(self) -> tuple[object, ...]:
        """Rebuild from the parts, so that the error crosses process borders."""
        return type(self), (self.field, self.found, self.allowed, self.hint)


class ConfigError(InvalidValueError):
    """An engine option is unknown, out of range or at odds with another one."""


class SamplingParamsError(InvalidValueError):
    """A field of `SamplingParams` is out of range or at odds with another one."""


class PromptError(InvalidValueError):
    """A prompt is malformed, empty, too long, or holds an id that does not exist."""


class UnsupportedError(JengineError):
    """A valid option that this version of jengine does not implement."""


class CheckpointError(JengineError):
    """A checkpoint cannot be used; the message names the file and the tensor."""


class DeviceError(JengineError):
    """No device can be used; the message says which was asked for, and what to do."""


class OutOfMemoryError(JengineError):
    """Weights, KV pool or a step do not fit into memory; it says what to lower."""


class ChatTemplateError(JengineError):
    """A conversation cannot be rendered with the chat template."""


_LONGEST_SHOWN = 120  # characters of a value: a prompt may be a megabyte long


def shorten(value: object) -> str:
    """Return a value as it stands in a message."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an int of too many digits, a deep dict
        return f"a value of type {type(value).__name__} too large to print"
    if len(text) <= _LONGEST_SHOWN:
        return text
    return f"{text[:_LONGEST_SHOWN]}... ({len(text)} characters)"
