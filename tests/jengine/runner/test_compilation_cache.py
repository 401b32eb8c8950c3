"""The cache of compiled programs, in processes of its own: jax has one setting."""

import json
import os
import subprocess
import sys

import jax
import pytest

PROGRAM = """
import json, logging, sys, warnings
import jax, jax.numpy as jnp

logging.basicConfig(level=logging.WARNING)
from jengine.runner.compilation_cache import enable_compilation_cache

events = []
jax.monitoring.register_event_listener(lambda name, **_: events.append(name))
for folder in json.loads(sys.argv[1]):
    enable_compilation_cache(folder, jax.local_devices()[0])
shape = jax.ShapeDtypeStruct((7,), jnp.float32)
jax.jit(lambda x: x * 2 + 1).lower(shape).compile()
print(json.dumps({
    "dir": jax.config.jax_compilation_cache_dir,
    "hits": events.count("/jax/compilation_cache/cache_hits"),
    "misses": events.count("/jax/compilation_cache/cache_misses"),
    "max": jax.config.jax_compilation_cache_max_size,
}))
"""


@pytest.fixture
def run(tmp_path):
    """Turns the cache on in a new process, compiles one program, and reports."""

    def run(*folders, **environment):
        own = ("XDG_", "JAX_COMPILATION_CACHE")
        clean = {k: v for k, v in os.environ.items() if not k.startswith(own)}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, json.dumps(folders)],
            env=clean | {"HOME": str(tmp_path)} | environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        return json.loads(done.stdout), done.stderr

    return run


def entries(folder):
    return [path for path in folder.rglob("*-cache") if path.is_file()]


def test_a_second_process_compiles_nothing(run, tmp_path):
    folder = tmp_path / "kept"
    first, _ = run(str(folder))
    assert (first["hits"], first["misses"]) == (0, 1)
    assert len(entries(folder)) == 1
    second, _ = run(str(folder))
    assert (second["hits"], second["misses"]) == (1, 0)
    assert first["dir"] == second["dir"]
    # One folder for each version of jax and kind of device.
    name = os.path.basename(first["dir"])
    kind = jax.local_devices()[0].device_kind
    assert name == f"jax-{jax.__version__}-{kind}"
    assert 2**30 < first["max"] < 2**33


def test_by_default_it_lies_in_the_users_cache_folder(run, tmp_path):
    found, _ = run(None)
    assert found["dir"].startswith(str(tmp_path))
    assert os.path.join("jengine", "xla", "jax-") in found["dir"]
    assert len(entries(tmp_path)) == 1


def test_false_keeps_nothing(run, tmp_path):
    found, _ = run(False)
    assert (found["dir"], found["hits"], found["misses"]) == (None, 0, 0)
    assert entries(tmp_path) == []


def test_the_first_engine_decides(run, tmp_path):
    found, _ = run(str(tmp_path / "a"), str(tmp_path / "b"), False)
    assert found["dir"].startswith(str(tmp_path / "a"))
    assert not (tmp_path / "b").exists()


def test_the_users_own_setting_is_respected(run, tmp_path):
    own = str(tmp_path / "own")
    found, _ = run(str(tmp_path / "ours"), JAX_COMPILATION_CACHE_DIR=own)
    assert found["dir"] == own
    assert not (tmp_path / "ours").exists()


def test_a_folder_that_cannot_be_made_is_warned_of(run, tmp_path):
    (tmp_path / "file").write_text("in the way")
    found, errors = run(str(tmp_path / "file" / "cache"))
    assert (found["dir"], found["misses"]) == (None, 0)
    assert "no compilation cache" in errors
    assert str(tmp_path / "file" / "cache") in errors
