import dataclasses

import pytest

from jengine.doctor.device import DeviceFacts
from jengine.doctor.folder import FolderFacts
from jengine.doctor.nvidia import NvidiaGpu
from jengine.doctor.problems import find_problems
from jengine.doctor.software import NEEDED, find_software

VERSIONS = dict.fromkeys(NEEDED, "0.10.2")
CPU = DeviceFacts(platform="cpu", devices=("cpu",), cache="folder")
GPU = DeviceFacts(
    platform="gpu", devices=("NVIDIA H200",), compute_capability=(9, 0), cache="folder"
)
DEAD = DeviceFacts(error="RuntimeError: no device")
CARD = NvidiaGpu("NVIDIA H200", "580.1", "1000", "0", "9.0")
FOLDER = FolderFacts(num_files=0, num_bytes=0, free_bytes=2**40, can_write=True)


def problems(device, *, gpus=(), cache=FOLDER, environment=None, **versions):
    named = {name.replace("_", "-"): version for name, version in versions.items()}
    software = find_software((VERSIONS | named).get)
    return find_problems(software, device, gpus, cache, environment or {})


def only(found):
    (problem,) = found
    return problem.what, problem.remedy


def test_nothing_is_wrong():
    assert problems(CPU) == ()
    assert problems(GPU, gpus=[CARD], jax_cuda13_plugin="0.10.2") == ()


def test_a_package_is_missing():
    (problem,) = problems(DEAD, flax=None, jax=None)
    assert problem.what == "not installed: jax flax"
    assert problem.remedy == "pip install jax flax"
    assert problem.stops


def test_a_package_that_models_run_without_is_missing():
    first, second = problems(CPU, rich=None, psutil=None)
    assert (first.what, first.stops) == ("not installed: psutil", True)
    assert second.what == "not installed: rich, for the colours of this report"
    assert (second.remedy, second.stops) == ("pip install rich", False)


def test_a_plugin_of_another_version():
    what, remedy = only(problems(CPU, jax_cuda12_plugin="0.9.1"))
    assert "jax-cuda12-plugin 0.9.1 does not go with jaxlib 0.10.2" in what
    assert remedy == "pip install 'jax[cuda12]==0.10.2'"


def test_two_plugins():
    both = {"jax_cuda12_plugin": "0.10.2", "jax_cuda13_plugin": "0.10.2"}
    what, remedy = only(problems(GPU, gpus=[CARD], **both))
    assert "can use one" in what
    assert remedy.startswith("pip uninstall -y jax-cuda12")


@pytest.mark.parametrize(
    ("gpus", "environment", "plugin", "remedy"),
    [
        ([], {}, None, "shows the whole message"),
        ([], {"JAX_PLATFORMS": "cuda"}, "0.10.2", "unset JAX_PLATFORMS"),
        ([CARD], {"JAX_PLATFORMS": "cuda"}, None, "pip install 'jax[cuda13]==0.10.2'"),
        ([CARD], {"JAX_PLATFORMS": "cuda"}, "0.10.2", "shows the whole message"),
    ],
)
def test_jax_does_not_start(gpus, environment, plugin, remedy):
    (problem,) = problems(
        DEAD, gpus=gpus, environment=environment, jax_cuda13_plugin=plugin
    )
    assert problem.stops
    assert "no device" in problem.what
    assert remedy in problem.remedy


@pytest.mark.parametrize(
    ("driver", "environment", "plugins", "remedy"),
    [
        ("580.1", {}, {}, "pip install 'jax[cuda13]==0.10.2'"),
        ("550.1", {}, {}, "pip install 'jax[cuda12]==0.10.2'"),
        ("470.1", {}, {}, "a driver of version 525 or newer"),
        (
            "550.1",
            {},
            {"jax_cuda13_plugin": "0.10.2"},
            "pip uninstall -y jax-cuda13-plugin jax-cuda13-pjrt; "
            "pip install 'jax[cuda12]==0.10.2'",
        ),
        ("580.1", {}, {"jax_cuda13_plugin": "0.10.2"}, "says why"),
        ("580.1", {"JAX_PLATFORMS": "cpu"}, {}, "unset JAX_PLATFORMS"),
        ("580.1", {"CUDA_VISIBLE_DEVICES": ""}, {}, "unset CUDA_VISIBLE_DEVICES"),
    ],
)
def test_a_gpu_that_jax_does_not_use(driver, environment, plugins, remedy):
    cards = [CARD._replace(driver=driver)]
    (problem,) = problems(CPU, gpus=cards, environment=environment, **plugins)
    assert problem.what.startswith("NVIDIA H200 is here, and jax computes on the CPU")
    assert remedy in problem.remedy
    assert not problem.stops


def test_a_library_of_the_plugin_is_missing():
    plugin = "RuntimeError: Unable to load cuDNN"
    cpu = dataclasses.replace(CPU, plugin=plugin)
    what, remedy = only(problems(cpu, gpus=[CARD], jax_cuda13_plugin="0.10.2"))
    assert what.endswith(plugin)
    assert remedy == "pip install 'jax[cuda13]==0.10.2'"
    assert problems(cpu) == ()  # without a GPU nobody needs it
    dead = dataclasses.replace(DEAD, plugin=plugin)
    assert plugin in only(problems(dead))[0]


def test_programs_and_kernels_that_fail():
    broken = DeviceFacts(platform="gpu", xla="out of memory", pallas="no Triton")
    first, second = problems(broken)
    assert first.stops
    assert "out of memory" in first.what
    assert 'attention_backend="xla"' in second.remedy
    interpreted = DeviceFacts(platform="cpu", cache="folder", pallas="no interpreter")
    assert problems(interpreted) == ()  # nothing uses it there


def test_a_card_that_others_use():
    what, remedy = only(problems(GPU, gpus=[CARD._replace(used_mib="500")]))
    assert "0.5 of 1.0 GiB" in what
    assert remedy.endswith("or LLM(..., gpu_memory_utilization=0.45)")
    _, remedy = only(problems(GPU, gpus=[CARD._replace(used_mib="1000")]))
    assert remedy == "end them (nvidia-smi lists them)"
    assert problems(GPU, gpus=[CARD._replace(used_mib="[N/A]")]) == ()


@pytest.mark.parametrize(
    ("cache", "remedy"),
    [
        (FOLDER._replace(can_write=False), "compilation_cache_dir"),
        (FOLDER._replace(free_bytes=2**20), "compilation_cache_dir"),
    ],
)
def test_programs_that_are_not_kept(cache, remedy):
    _, found = only(problems(CPU, cache=cache))
    assert remedy in found
    what, found = only(problems(CPU, cache=None, platformdirs=None))
    assert "keeping compiled programs" in what
    assert found == "pip install platformdirs"


def test_what_stops_everything_comes_first():
    found = problems(DEAD, jax_cuda12_plugin="0.9.1")
    assert [problem.stops for problem in found] == [True, False]
