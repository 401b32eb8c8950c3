"""Takes a compiled program and XLA's dump of it apart into facts."""

import hashlib
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jengine.aot.facts import KernelFacts, ProgramFacts
from jengine.aot.hlo import count_collectives, count_copies, pallas_kernels
from jengine.aot.ptx import Resources, assemble, count_instructions, entry_names
from jengine.aot.thunks import Launch, launches_per_layer, parse_launches

_CALL = re.compile(r'custom_call_target="__gpu\$xla\.gpu\.triton".*')
_CONFIG = re.compile(r"backend_config=(.*)")


class Subject(NamedTuple):
    """What is known of a program before it is looked at.

    Attributes:
      layers: that it was compiled with; 0 for a sampling program.
      kv_shape: of one layer's keys on one card.
      dtype: of the cache.
    """

    layers: int
    kv_shape: tuple[int, ...]
    dtype: str


class KernelBook:
    """Facts of Pallas kernels by their code: equal kernels are assembled once.

    XLA's kernel cache leaves out the text of what it has seen before, so that a
    later program's kernels are looked up here. Kernels of programs that differ in
    size only may come out as the same text, which is looked up too.
    """

    def __init__(self, ptxas: str) -> None:
        """Start empty; `ptxas` is the path of the assembler."""
        self._ptxas = ptxas
        self._known: dict[str, KernelFacts] = {}
        self._assembled: dict[str, Resources] = {}
        self._lock = threading.Lock()

    def look_up(
        self, code: Mapping[str, str], dump: Path, launches: tuple[Launch, ...]
    ) -> tuple[KernelFacts, ...] | None:
        """Return the facts of kernels.

        Args:
          code: for each kernel's name what tells it from others.
          dump: XLA's dump of the program.
          launches: of the program.

        Returns:
          None where a kernel is neither known nor in the dump.
        """
        written = _entries(dump)
        shared: dict[str, int] = {}
        for launch in launches:
            most = max(launch.shared_bytes, shared.get(launch.name, 0))
            shared[launch.name] = most
        found = []
        for name, identity in code.items():
            with self._lock:
                facts = self._known.get(identity)
            if facts is None and name in written:
                facts = self._read(name, written[name], shared.get(name, 0))
                with self._lock:
                    self._known[identity] = facts
            if facts is None:
                return None
            found.append(facts)
        return tuple(found)

    def _read(self, name: str, path: Path, dynamic_bytes: int) -> KernelFacts:
        text = path.read_text()
        digest = hashlib.sha256(text.encode()).hexdigest()
        resources = self._assembled.get(digest)
        if resources is None:
            resources = assemble(path, self._ptxas)[name]
            self._assembled[digest] = resources
        return KernelFacts(
            name=name,
            registers=resources.registers,
            spill_bytes=resources.spill_bytes,
            shared_bytes=resources.shared_bytes + dynamic_bytes,
            instructions=count_instructions(text),
        )


def inspect(
    compiled: Any, dump: Path, subject: Subject, book: KernelBook, *, seconds: float
) -> ProgramFacts | None:
    """Return what there is to know of a compiled program.

    Args:
      compiled: what jax returned.
      dump: folder that XLA wrote while compiling it, and nothing else.
      subject: what is known of it.
      book: kernels seen so far.
      seconds: how long it took.

    Returns:
      None where a kernel's text is missing; compile it again without a cache.
    """
    module, memory = compiled.as_text(), compiled.memory_analysis()
    launches = _launches(dump)
    kernels = book.look_up(_kernel_code(module), dump, launches)
    if kernels is None:
        return None
    return ProgramFacts(
        layers=subject.layers,
        compile_s=round(seconds, 2),
        argument_bytes=memory.argument_size_in_bytes,
        output_bytes=memory.output_size_in_bytes,
        temp_bytes=memory.temp_size_in_bytes,
        aliased_bytes=memory.alias_size_in_bytes,
        kv_copies=count_copies(module, subject.kv_shape, subject.dtype),
        launches=len(launches),
        launches_per_layer=launches_per_layer(launches, subject.layers),
        collectives=count_collectives(module),
        kernels=kernels,
    )


def _launches(dump: Path) -> tuple[Launch, ...]:
    (path,) = dump.glob("*.thunk_sequence.txt")
    return parse_launches(path.read_text())


def _kernel_code(module: str) -> dict[str, str]:
    """Return for each Pallas kernel a digest of its code and of its operands."""
    code = {}
    for call in _CALL.findall(module):
        (name,) = pallas_kernels(call)
        config = _CONFIG.search(call)
        text = config[1] if config else call
        code.setdefault(name, hashlib.sha256(text.encode()).hexdigest())
    return code


def _entries(dump: Path) -> dict[str, Path]:
    return {
        name: path
        for path in sorted(dump.glob("*.ptx"))
        for name in entry_names(path.read_text())
    }
