import importlib.util
import os
import subprocess
import sys

import pytest

from jengine.bench.gpu_check.part import DEVICE, PARTS


def test_names_are_unique_and_modules_exist():
    names = [part.name for part in (DEVICE, *PARTS)]
    assert len(set(names)) == len(names)
    for part in (DEVICE, *PARTS):
        assert importlib.util.find_spec(part.module) is not None


def test_the_order_is_that_of_their_value():
    modules = [part.module.rpartition(".")[2] for part in PARTS]
    assert list(dict.fromkeys(modules)) == [
        "kernel",
        "parity",
        "bandwidth",
        "engine",
        "torch_decode",
        "flag_steps",
        "tuning",
    ]


def test_every_module_is_part_of_a_smoke_test():
    assert {p.module for p in PARTS if p.in_smoke} == {p.module for p in PARTS}


@pytest.mark.parametrize("flags", [" ".join(p.xla_flags or "" for p in PARTS)])
def test_this_version_of_xla_knows_the_flags(flags):
    # XLA ends the process if it knows one of them not, on a CPU too.
    code = "import jax; jax.numpy.ones(1).block_until_ready()"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-500:]


def test_parts_need_no_package_that_an_image_for_gpus_lacks():
    modules = sorted({part.module for part in (DEVICE, *PARTS)})
    code = f"""
import importlib, sys

class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("gguf", "platformdirs", "torch"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Lacking())
for name in {modules}:
    importlib.import_module(name)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-500:]
