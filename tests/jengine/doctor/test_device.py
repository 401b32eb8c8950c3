import json
import os
import sys

import pytest

from jengine.doctor.device import DeviceFacts, probe_device

FOUND = {
    "platform": "gpu",
    "devices": ["NVIDIA H200"],
    "compute_capability": [9, 0],
    "memory_bytes": 100,
    "pool_bytes": 50,
    "cache": None,
    "jax_cache": None,
    "xla": None,
    "pallas": "no Triton",
}


def run(code, **options):
    return probe_device(os.environ, command=(sys.executable, "-c", code), **options)


def test_what_the_probe_says():
    found = run(f"print('some warning'); print({json.dumps(FOUND)!r})")
    assert found == DeviceFacts(
        platform="gpu",
        devices=("NVIDIA H200",),
        compute_capability=(9, 0),
        memory_bytes=100,
        pool_bytes=50,
        pallas="no Triton",
    )


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ('print(\'{"error": "RuntimeError: no device"}\')', "RuntimeError: no device"),
        ("import os; os.abort()", "ended by SIGABRT"),
        ("import sys; sys.stderr.write('bad plugin\\n'); sys.exit(3)", "bad plugin"),
        ("print('not JSON')", "ended with status 0"),
        ("print('[1]')", "ended with status 0"),
        ("print('{}')", "ended with status 0"),
    ],
)
def test_whatever_happens_is_a_fact(code, error):
    found = run(code)
    assert error in found.error
    assert found.devices == ()


def test_a_plugin_that_cannot_be_used():
    said = "Jax plugin configuration error: x\n  File y\nOSError: a\nRuntimeError: b\n"
    found = run(f"import sys; sys.stderr.write({said!r}); print({json.dumps(FOUND)!r})")
    assert found.plugin == "RuntimeError: b"
    assert found.platform == "gpu"
    assert run(f"print({json.dumps(FOUND)!r})").plugin is None


def test_it_waits_only_so_long():
    found = run("import time; time.sleep(60)", patience_s=0.2)
    assert found.error == "jax has not started after 0.2 s"


def test_a_python_that_is_not_there(tmp_path):
    found = probe_device({}, command=(str(tmp_path / "python"),))
    assert "could not be started" in str(found.error)


def test_the_environment_is_handed_on_and_no_memory_taken():
    code = (
        "import os, json; names = ('JAX_PLATFORMS', 'XLA_PYTHON_CLIENT_PREALLOCATE');"
        "print(json.dumps({'error': [os.environ[n] for n in names]}))"
    )
    found = probe_device(
        {**os.environ, "JAX_PLATFORMS": "x"}, command=(sys.executable, "-c", code)
    )
    assert found.error == "['x', 'false']"
