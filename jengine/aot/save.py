"""Keeps compiled programs on disk, by version of jax, card and configuration.

jax's serialised executables are pickles: load only what you wrote yourself. A program
compiled without a card has GEMM tiles that nobody measured, see docs/gpu.md.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.experimental import serialize_executable

from jengine.aot.survey import Survey
from jengine.errors import ConfigError

SUFFIX = ".jax-executable"


class ProgramFolder(NamedTuple):
    """Where the programs of one configuration lie."""

    path: Path

    @classmethod
    def of(cls, survey: Survey) -> "ProgramFolder | None":
        """Make the folder of a survey; None where nothing is to be kept.

        Raises:
          ConfigError: it cannot be made.
        """
        if survey.request.save is None:
            return None
        described = describe(survey)
        path = Path(survey.request.save) / folder_name(described)
        text = json.dumps(described, indent=2, sort_keys=True)
        try:
            path.mkdir(parents=True, exist_ok=True)
            (path / "configuration.json").write_text(text + "\n")
        except OSError as error:
            allowed = f"a folder that can be written ({error.strerror})"
            raise ConfigError("--save", survey.request.save, allowed) from error
        return cls(path)

    def save(self, name: str, compiled: jax.stages.Compiled) -> None:
        """Write one program."""
        payload, _, _ = serialize_executable.serialize(compiled)
        (self.path / (name + SUFFIX)).write_bytes(payload)

    def load(self, name: str, arguments: Any, results: Any) -> jax.stages.Compiled:
        """Read one program onto the devices of this process.

        Args:
          name: of the program.
          arguments: a tuple like that of its arguments, of anything.
          results: like what it returns.
        """
        payload = (self.path / (name + SUFFIX)).read_bytes()
        return serialize_executable.deserialize_and_load(
            payload, jax.tree.structure((arguments, {})), jax.tree.structure(results)
        )


def describe(survey: Survey) -> dict[str, Any]:
    """Return all that a program depends on, as plain values."""
    return {
        "jax": jax.__version__,
        "target": survey.target.name,
        "config": dict(survey.request.config),
        "tensor_parallel_size": survey.request.tensor_parallel_size,
        "dtype": survey.resolved.dtype,
        "attention_backend": survey.resolved.attention_backend,
        "num_blocks": survey.num_blocks,
        "block_size": survey.resolved.block_size,
        "max_num_seqs": survey.resolved.max_num_seqs,
        "rows": survey.buckets.rows,
        "tokens": survey.buckets.tokens,
        "table_widths": survey.buckets.table_widths,
    }


def folder_name(described: dict[str, Any]) -> str:
    """Return a name that differs where anything of it does."""
    text = json.dumps(described, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"jax-{described['jax']}-{described['target']}-{digest}"
