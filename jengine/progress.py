"""Progress of a call over many requests, as a bar or as whatever the caller brings."""

import contextlib
import time
from collections.abc import Callable
from typing import Any

from tqdm.auto import tqdm

from jengine.outputs import RequestOutput


class Progress:
    """Shows how many requests have finished, if anybody wants to see it."""

    def __init__(self, use_tqdm: bool | Callable[..., Any], total: int) -> None:
        """Show the start.

        Args:
          use_tqdm: whether to show anything, or a callable to show it with that takes
            tqdm's arguments.
          total: number of requests.
        """
        self._bar: Any = None
        self._num_tokens = 0
        self._start = time.monotonic()
        if use_tqdm:
            make = use_tqdm if callable(use_tqdm) else tqdm
            self._bar = make(total=total, desc="Processed prompts", dynamic_ncols=True)

    def advance(self, output: RequestOutput) -> None:
        """Count a finished request."""
        if self._bar is None:
            return
        self._bar.update(1)
        self._num_tokens += sum(len(done.token_ids) for done in output.outputs)
        # A bar that is not tqdm's may be without this, or have it in another form.
        with contextlib.suppress(Exception):
            self._show_rate()

    def _show_rate(self) -> None:
        elapsed = time.monotonic() - self._start
        if hasattr(self._bar, "format_dict"):
            elapsed = self._bar.format_dict["elapsed"]
        if elapsed:
            rate = self._num_tokens / elapsed
            self._bar.set_postfix_str(f"output: {rate:.1f} tokens/s", refresh=False)

    def close(self) -> None:
        """Leave the last state on the screen."""
        if self._bar is not None:
            self._bar.close()
