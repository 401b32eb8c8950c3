import subprocess
import sys

import pytest

import jengine

CHEAP = [
    "jengine",
    "jengine.config",
    "jengine.sampling_params",
    "jengine.outputs",
    "jengine.prompts",
    "jengine.core.scheduler",
]


@pytest.mark.parametrize("module", CHEAP)
def test_host_side_loads_no_array_library(module):
    heavy = "{'jax', 'jaxlib', 'flax', 'numpy', 'transformers', 'torch'}"
    code = f"import sys, {module}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


@pytest.mark.parametrize("name", jengine.__all__)
def test_public_names_can_be_imported(name):
    assert getattr(jengine, name) is not None
    assert name in dir(jengine)


def test_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'LMM'"):
        jengine.LMM  # noqa: B018
