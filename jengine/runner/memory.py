"""Turns jax's words for exhausted memory into a message that names the way out."""

import contextlib
from collections.abc import Iterator

from jengine.errors import OutOfMemoryError

_SIGN = "RESOURCE_EXHAUSTED"  # in messages of several kinds of error


@contextlib.contextmanager
def naming_what_does_not_fit(what: str, way_out: str) -> Iterator[None]:
    """Say what was to be put into memory if there is not enough of it.

    Args:
      what: in words, with its size.
      way_out: a sentence, with the options that help.

    Raises:
      OutOfMemoryError: memory was exhausted. All other errors pass.
    """
    try:
        yield
    except (MemoryError, RuntimeError, ValueError) as error:
        if not isinstance(error, MemoryError) and _SIGN not in str(error):
            raise
        words = " ".join(str(error).split()) or "no memory is left"
        raise OutOfMemoryError(
            f"{what} does not fit into memory. {way_out} ({words})"
        ) from error
