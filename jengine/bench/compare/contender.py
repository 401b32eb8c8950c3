"""One engine of a comparison: its process, what is known of it, and its calls."""

import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jengine.bench.compare.backend_process import BackendError, BackendProcess, Launch
from jengine.bench.compare.cpu_load import foreign_cpus, read_cpu_times
from jengine.bench.compare.result import Sample

_QUIET_WINDOW_S = 0.5


class Call(NamedTuple):
    """What a call brought.

    Attributes:
      sample: its figures.
      token_ids: new ids of each prompt.
    """

    sample: Sample
    token_ids: list[list[int]]


class Contender:
    """An engine that runs, or the reason why it does not.

    Attributes:
      name: of the engine.
      about: `version`, `versions`, `init_s`, `first_token_s`, `start_foreign_cpus`,
        as far as they are known.
      error: why it has no process, or no longer one.
    """

    def __init__(self, name: str, error: str | None = None) -> None:
        """Start nothing."""
        self.name = name
        self.about: dict[str, Any] = {}
        self.error = error
        self._process: BackendProcess | None = None

    @property
    def is_running(self) -> bool:
        """Whether it can be called."""
        return self._process is not None

    @property
    def peak_rss_bytes(self) -> int | None:
        """Most memory that its processes have held so far; None without any."""
        return None if self._process is None else self._process.peak_rss_bytes()

    def start(
        self,
        launch: Launch,
        options: Mapping[str, Any],
        first_prompt: Sequence[int],
        *,
        log: pathlib.Path,
        timeout_s: float,
    ) -> None:
        """Start the process, load the model and generate a first token.

        If that fails, `error` says why.
        """
        before = read_cpu_times()
        try:
            self._process = BackendProcess(launch, log)
            self.about |= self._process.ask(options, timeout_s)
            question = {"prompts": [list(first_prompt)], "output_tokens": 1}
            answer = self._process.ask(question, timeout_s)
        except BackendError as error:
            self.fail(error)
            return
        self.about["first_token_s"] = answer["since_start_s"]
        self.about["start_foreign_cpus"] = foreign_cpus(before, read_cpu_times())

    def call(
        self, prompts: list[list[int]], output_tokens: int, timeout_s: float
    ) -> Call:
        """Generate once.

        Raises:
          BackendError: the engine failed, or some output has another length.
        """
        assert self._process is not None
        question = {"prompts": prompts, "output_tokens": output_tokens}
        before = read_cpu_times()
        answer = self._process.ask(question, timeout_s)
        foreign = foreign_cpus(before, read_cpu_times())
        token_ids = answer["token_ids"]
        lengths = {len(ids) for ids in token_ids}
        if lengths != {output_tokens} or len(token_ids) != len(prompts):
            raise BackendError(
                f"{len(token_ids)} outputs of {sorted(lengths)} tokens; expected "
                f"{len(prompts)} of {output_tokens}"
            )
        rate = len(prompts) * output_tokens / answer["seconds"]
        return Call(Sample(tokens_per_s=rate, foreign_cpus=foreign), token_ids)

    def fail(self, error: BackendError) -> None:
        """End the process and remember why."""
        self.error = str(error)
        self.close()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.close()
            self._process = None


def wait_for_quiet(max_foreign_cpus: float, timeout_s: float) -> None:
    """Wait until others use less of the machine, or the time is over."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        before = read_cpu_times()
        time.sleep(_QUIET_WINDOW_S)
        if foreign_cpus(before, read_cpu_times()) <= max_foreign_cpus:
            return
