"""Gathers everything into one report."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from jengine.bench.machine import Machine, describe_machine, find_memory
from jengine.doctor.choices import list_choices
from jengine.doctor.device import DeviceFacts, probe_device
from jengine.doctor.folder import FolderFacts, look_at_folder
from jengine.doctor.nvidia import NvidiaGpu, list_gpus
from jengine.doctor.problems import find_problems
from jengine.doctor.report import Fact, Report
from jengine.doctor.software import OPTIONAL, Software, find_software

# What changes how jax, its plugins and the loading of checkpoints behave. Nothing here
# may hold a password: the report goes into bug reports.
_PREFIXES = ("JAX_", "XLA_", "TF_")
_VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "HF_HOME",
    "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "OMP_NUM_THREADS",
)  # fmt: skip


class Found(NamedTuple):
    """All that was looked at.

    Attributes:
      machine: processor and versions.
      software: installed packages.
      gpus: NVIDIA GPUs that the driver lists.
      device: what jax can use.
      cache: the folder of compiled programs; None if there is none.
    """

    machine: Machine
    software: Software
    gpus: Sequence[NvidiaGpu]
    device: DeviceFacts
    cache: FolderFacts | None


def diagnose(
    environment: Mapping[str, str],
    *,
    probe: Callable[[Mapping[str, str]], DeviceFacts] = probe_device,
) -> Report:
    """Look at everything and say what it comes to; starts a process for jax.

    Args:
      environment: variables of this process.
      probe: looks at the device.
    """
    device = probe(environment)
    cache = device.jax_cache or device.cache
    found = Found(
        machine=describe_machine(),
        software=find_software(),
        gpus=list_gpus(),
        device=device,
        cache=None if cache is None else look_at_folder(cache),
    )
    return make_report(found, environment)


def make_report(found: Found, environment: Mapping[str, str]) -> Report:
    """Put what was found into words."""
    sections = {
        "machine": _machine(found),
        "packages": _packages(found.software),
        "device": _device(found.device),
        "choices": () if found.device.error else list_choices(found.device),
        "compiled programs": _cache(found),
        "environment": _environment(environment),
        "for more": _optional(found.software),
    }
    return Report(
        sections={title: tuple(facts) for title, facts in sections.items()},
        problems=find_problems(
            found.software, found.device, found.gpus, found.cache, environment
        ),
    )


def _machine(found: Found) -> Iterator[Fact]:
    machine, memory = found.machine, find_memory()
    yield Fact("jengine", dict(machine.versions)["jengine"] + _commit(machine))
    yield Fact("Python", f"{machine.python}, {sys.executable}")
    yield Fact("system", machine.system)
    yield Fact("processor", f"{machine.cpu}, {machine.cores} CPUs for this process")
    if memory is None:
        yield Fact("memory", "unknown", "psutil would tell")
    else:
        size = f"{_gib(memory.total)}, {_gib(memory.available)} available"
        yield Fact("memory", size)
    for gpu in found.gpus:
        size = f"{gpu.memory_mib} MiB, {gpu.used_mib} MiB in use"
        yield Fact("GPU", f"{gpu.name}, {size}, driver {gpu.driver}")
    if not found.gpus:
        yield Fact("GPU", "none by nvidia-smi")


def _packages(software: Software) -> Iterator[Fact]:
    for name, version in software.needed.items():
        yield Fact(name, version or "not installed")
    plugins = [f"{name} {version}" for name, version in software.plugins.items()]
    yield Fact("plugins of jax", ", ".join(plugins) or "none: jax computes on the CPU")


def _device(device: DeviceFacts) -> Iterator[Fact]:
    if device.error is not None:
        yield Fact("jax", f"does not start: {device.error}")
        return
    names = ", ".join(dict.fromkeys(device.devices))
    yield Fact("platform", device.platform)
    yield Fact("devices", f"{len(device.devices)}: {names}")
    if device.compute_capability is not None:
        yield Fact("compute capability", "{}.{}".format(*device.compute_capability))
    if device.memory_bytes is not None:
        yield Fact("memory that jax may use", _gib(device.memory_bytes))
    if device.plugin is not None:
        why = "a machine without a GPU needs none" if device.platform == "cpu" else ""
        yield Fact("plugin", f"not used: {device.plugin}", why)
    yield Fact("a program of XLA", _outcome(device.xla, "runs"))
    word = "runs, interpreted" if device.platform == "cpu" else "runs, compiled"
    yield Fact("a kernel of Pallas", _outcome(device.pallas, word))


def _cache(found: Found) -> Iterator[Fact]:
    cache = found.cache
    if cache is None:
        yield Fact("folder", "none")
        return
    by_jax = found.device.jax_cache
    why = "JAX_COMPILATION_CACHE_DIR says so" if by_jax else ""
    yield Fact("folder", str(by_jax or found.device.cache), why)
    yield Fact("size", f"{cache.num_bytes / 2**20:.0f} MiB in {cache.num_files} files")
    yield Fact("free on its disk", _gib(cache.free_bytes))


def _environment(environment: Mapping[str, str]) -> Iterator[Fact]:
    for name in sorted(environment):
        if name.startswith(_PREFIXES) or name in _VARIABLES:
            yield Fact(name, environment[name])


def _optional(software: Software) -> Iterator[Fact]:
    for name, version in software.optional.items():
        if version is None:
            yield Fact(name, f"not installed: pip install {name}", OPTIONAL[name])
        else:
            yield Fact(name, version, OPTIONAL[name])


def _outcome(error: str | None, word: str) -> str:
    return word if error is None else f"fails: {error}"


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.1f} GiB"


def _commit(machine: Machine) -> str:
    return f", commit {machine.git_commit}" if machine.git_commit else ""
