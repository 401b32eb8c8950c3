"""What a comparison found, as frozen values, and the figures drawn from them."""

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One call of one engine.

    Attributes:
      tokens_per_s: output tokens over the call's wall time.
      foreign_cpus: CPUs that other processes kept busy meanwhile.
    """

    tokens_per_s: float
    foreign_cpus: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BackendResult:
    """One engine at one batch size.

    Attributes:
      backend: its name.
      version: of the engine; None if it did not start.
      batch: requests of each call.
      prompt_tokens: of all prompts of a call together.
      output_tokens: of all outputs of a call together.
      samples: the round's calls that count, one a round.
      rejected: calls that were repeated because the machine was busy.
      init_s: from the start of the process until the model was loaded.
      first_token_s: from the start of the process to the first token of all.
      start_foreign_cpus: CPUs that others kept busy meanwhile.
      peak_rss_bytes: most memory that its processes held, each at its own peak.
      same_tokens: share of the output tokens that are the first engine's, up to the
        first difference of each request; None for the first engine itself.
      versions: of what the engine stands on.
      max_foreign_cpus: what a sample may have to count as undisturbed.
      error: why it has no figures, or no more of them; None if all went well.
    """

    backend: str
    version: str | None = None
    batch: int
    prompt_tokens: int
    output_tokens: int
    samples: tuple[Sample, ...] = ()
    rejected: tuple[Sample, ...] = ()
    init_s: float | None = None
    first_token_s: float | None = None
    start_foreign_cpus: float | None = None
    peak_rss_bytes: int | None = None
    same_tokens: float | None = None
    versions: tuple[tuple[str, str], ...] = ()
    max_foreign_cpus: float
    error: str | None = None

    @property
    def is_disturbed(self) -> bool:
        """Whether others used the machine in some round that counts."""
        return any(s.foreign_cpus > self.max_foreign_cpus for s in self.samples)

    @property
    def median(self) -> float | None:
        """Median of the output tokens per second; None without any round."""
        rates = [sample.tokens_per_s for sample in self.samples]
        return statistics.median(rates) if rates else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        plain = dataclasses.asdict(self)
        samples = plain.pop("samples")
        plain["versions"] = dict(self.versions)
        plain["output_tokens_per_s"] = [s["tokens_per_s"] for s in samples]
        plain["foreign_cpus"] = [s["foreign_cpus"] for s in samples]
        return plain


def ratio_to_best_other(
    results: Sequence[BackendResult], backend: str, batch: int
) -> float | None:
    """Return an engine's median over the best of the others'; None if one lacks."""
    medians = {r.backend: r.median for r in results if r.batch == batch}
    own = medians.pop(backend, None)
    others = [median for median in medians.values() if median is not None]
    if own is None or not others:
        return None
    return own / max(others)


def share_of_same_tokens(
    found: Sequence[Sequence[int]], expected: Sequence[Sequence[int]]
) -> float:
    """Return the share of tokens before the first difference of each request."""
    same = total = 0
    for one, other in zip(found, expected, strict=True):
        pairs = list(zip(one, other, strict=True))
        total += len(pairs)
        differing = [i for i, (a, b) in enumerate(pairs) if a != b]
        same += differing[0] if differing else len(pairs)
    return same / total
