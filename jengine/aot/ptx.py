"""What NVIDIA's assembler says of a kernel, and which instructions it uses."""

import collections
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from jengine.errors import JengineError

_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_TARGET = re.compile(r"\.target\s+(sm_\w+)")
_OPCODE = re.compile(r"^\s*(?:@%?\w+\s+)?([a-z][\w.:]*)", re.MULTILINE)
_FUNCTION = re.compile(r"Compiling entry function '([^']+)'")

# Prefixes of opcodes that tell how a kernel works.
NOTABLE = ("wgmma.mma_async", "mma.sync", "cp.async", "ldmatrix", "ld.global", "bar")


class Resources(NamedTuple):
    """What a kernel takes.

    Attributes:
      registers: of a thread.
      spill_bytes: bytes that a thread spills: stores and loads together.
      shared_bytes: static shared memory of a block.
    """

    registers: int
    spill_bytes: int
    shared_bytes: int


class PtxError(JengineError):
    """The assembler refused a kernel."""


def entry_names(ptx: str) -> list[str]:
    """Return the kernels of a PTX file."""
    return _ENTRY.findall(ptx)


def count_instructions(ptx: str) -> dict[str, int]:
    """Return how often instructions that tell how a kernel works occur in its text.

    >>> count_instructions("  mma.sync.aligned.m16n8k16 {%r1};  ret;")
    {'mma.sync': 1}
    """
    counts: collections.Counter[str] = collections.Counter()
    for statement in ptx.split(";"):
        opcode = _OPCODE.search(statement.rsplit("\n", 1)[-1])
        if opcode is None:
            continue
        for prefix in NOTABLE:
            if opcode[1] == prefix or opcode[1].startswith(f"{prefix}."):
                counts[prefix] += 1
    return {name: counts[name] for name in NOTABLE if counts[name]}


def parse_resources(output: str) -> dict[str, Resources]:
    """Read what `ptxas -v` prints, kernel by kernel."""
    parts = _FUNCTION.split(output)[1:]
    return {
        name: Resources(
            registers=_number(r"Used (\d+) registers", text),
            spill_bytes=_number(r"(\d+) bytes spill stores", text)
            + _number(r"(\d+) bytes spill loads", text),
            shared_bytes=_number(r"(\d+) bytes smem", text),
        )
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }


def assemble(path: Path, ptxas: str) -> Mapping[str, Resources]:
    """Assemble a PTX file for the architecture that it names.

    Raises:
      PtxError: the assembler refuses it.
    """
    target = _TARGET.search(path.read_text())
    if target is None:
        raise PtxError(f"{path.name} names no architecture")
    command = [ptxas, "-v", "--gpu-name", target[1], str(path), "-o", "/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PtxError(f"ptxas refuses {path.name}: {done.stderr.strip()[-500:]}")
    return parse_resources(done.stderr)


def _number(pattern: str, text: str) -> int:
    match = re.search(pattern, text)
    return int(match[1]) if match else 0
