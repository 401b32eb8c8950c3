"""What is missing or wrong, and what mends it. Pure: from what was found to words."""

import math
from collections.abc import Iterator, Mapping, Sequence

from jengine.doctor.device import DeviceFacts
from jengine.doctor.folder import FolderFacts
from jengine.doctor.nvidia import LEAST_DRIVER, NvidiaGpu, newest_cuda
from jengine.doctor.report import Problem
from jengine.doctor.software import FOR_SOME, Software

_LEAST_FREE = 2**30  # bytes of a disk, for compiled programs
_MOST_USED = 0.2  # share of a card that others may hold unmentioned
SHOW_JAX = "python -c 'import jax; print(jax.devices())'"


def find_problems(
    software: Software,
    device: DeviceFacts,
    gpus: Sequence[NvidiaGpu],
    cache: FolderFacts | None,
    environment: Mapping[str, str],
) -> tuple[Problem, ...]:
    """Return what is wrong, what stops everything first.

    Args:
      software: the installed packages.
      device: what jax can use.
      gpus: the NVIDIA GPUs that the driver lists.
      cache: the folder of compiled programs; None if there is none.
      environment: variables of this process.
    """
    found = [
        *_of_packages(software),
        *_of_start(software, device, gpus, environment),
        *_of_idle_gpus(software, device, gpus, environment),
        *_of_programs(device),
        *_of_cards(device, gpus),
        *_of_cache(device, cache),
    ]
    return tuple(sorted(found, key=lambda problem: not problem.stops))


def _of_packages(software: Software) -> Iterator[Problem]:
    stopping = [name for name in software.missing if name not in FOR_SOME]
    if stopping:
        names = " ".join(stopping)
        yield Problem(f"not installed: {names}", f"pip install {names}", stops=True)
    for name in software.missing:
        if name in FOR_SOME:
            what = f"not installed: {name}, for {FOR_SOME[name]}"
            yield Problem(what, f"pip install {name}")
    if software.mismatched:
        found = ", ".join(f"{n} {v}" for n, v in software.mismatched.items())
        yield Problem(
            f"{found} does not go with jaxlib {software.needed['jaxlib']}: jax ignores"
            " it, or fails",
            _install_plugin(software, _major_of(next(iter(software.mismatched)))),
        )
    if len(software.cuda_majors) > 1:
        yield Problem(
            "plugins for CUDA 12 and for CUDA 13 are installed; jax can use one",
            "pip uninstall -y jax-cuda12-plugin jax-cuda12-pjrt",
        )


def _of_start(
    software: Software,
    device: DeviceFacts,
    gpus: Sequence[NvidiaGpu],
    environment: Mapping[str, str],
) -> Iterator[Problem]:
    if device.error is None or software.missing:
        return
    asked = environment.get("JAX_PLATFORMS")
    why = "" if device.plugin is None else f"; of its plugin it says {device.plugin}"
    remedy = f"{SHOW_JAX} shows the whole message"
    if asked and not gpus:
        remedy = f"no GPU is found here: unset JAX_PLATFORMS, which is {asked!r}"
    elif asked and not software.plugins:
        remedy = _install_plugin(software, newest_cuda(list(gpus)))
    yield Problem(f"jax does not start: {device.error}{why}", remedy, stops=True)


def _of_idle_gpus(
    software: Software,
    device: DeviceFacts,
    gpus: Sequence[NvidiaGpu],
    environment: Mapping[str, str],
) -> Iterator[Problem]:
    """The driver lists GPUs, and jax computes on the CPU."""
    if not gpus or device.platform != "cpu":
        return
    what = f"{gpus[0].name} is here, and jax computes on the CPU"
    newest = newest_cuda(list(gpus))
    for name in ("JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES"):
        if name in environment:
            yield Problem(f"{what}: {name} is {environment[name]!r}", f"unset {name}")
            return
    if newest is None:
        least = min(LEAST_DRIVER.values())
        yield Problem(
            f"{what}: its driver {gpus[0].driver} is too old",
            f"install a driver of version {least} or newer",
        )
    elif not software.cuda_majors:
        yield Problem(
            f"{what}: it has no plugin for it", _install_plugin(software, newest)
        )
    elif min(software.cuda_majors) > newest:
        yield Problem(
            f"{what}: driver {gpus[0].driver} runs CUDA {newest}, and the plugin is for"
            f" CUDA {min(software.cuda_majors)}",
            "pip uninstall -y jax-cuda13-plugin jax-cuda13-pjrt; "
            + _install_plugin(software, newest),
        )
    elif device.plugin is not None:  # most often a library of NVIDIA's is missing
        cuda = _install_plugin(software, min(software.cuda_majors))
        yield Problem(f"{what}: {device.plugin}", cuda)
    else:
        yield Problem(what, f"{SHOW_JAX} says why")


def _of_programs(device: DeviceFacts) -> Iterator[Problem]:
    if device.xla is not None:
        yield Problem(
            f"a program of XLA fails: {device.xla}",
            f"{SHOW_JAX} shows more; JAX_PLATFORMS=cpu computes without the device",
            stops=True,
        )
    if device.pallas is not None and device.platform == "gpu":
        yield Problem(
            f"a kernel of Pallas fails: {device.pallas}",
            'LLM(..., attention_backend="xla") runs without such kernels',
        )


def _of_cards(device: DeviceFacts, gpus: Sequence[NvidiaGpu]) -> Iterator[Problem]:
    if device.platform != "gpu" or not gpus:
        return
    used, total = gpus[0].used_mib, gpus[0].memory_mib
    if used.isdigit() and total.isdigit() and int(used) > _MOST_USED * int(total):
        free = 1 - int(used) / int(total)
        smaller = f", or LLM(..., gpu_memory_utilization={math.floor(90 * free) / 100})"
        yield Problem(
            f"other programs hold {int(used) / 1024:.1f} of {int(total) / 1024:.1f} GiB"
            f" of {gpus[0].name}",
            "end them (nvidia-smi lists them)" + (smaller if free > 0.1 else ""),
        )


def _of_cache(device: DeviceFacts, cache: FolderFacts | None) -> Iterator[Problem]:
    if device.error is not None or cache is None:
        return
    if not cache.can_write or cache.free_bytes < _LEAST_FREE:
        why = "is full" if cache.can_write else "cannot be written"
        others = "let JAX_COMPILATION_CACHE_DIR name another folder"
        own = 'LLM(..., compilation_cache_dir="another folder")'
        yield Problem(
            f"compiled programs are not kept: {device.jax_cache or device.cache} {why}",
            others if device.jax_cache else own,
        )


def _install_plugin(software: Software, cuda: int | None) -> str:
    version = "" if software.jax is None else f"=={software.jax}"
    return f"pip install 'jax[cuda{cuda or max(LEAST_DRIVER)}]{version}'"


def _major_of(plugin: str) -> int | None:
    return next((cuda for cuda in LEAST_DRIVER if f"cuda{cuda}" in plugin), None)
