import pytest

from jengine.errors import ConfigError, OutOfMemoryError
from jengine.runner.memory import naming_what_does_not_fit


def fail(error):
    with naming_what_does_not_fit("the pool of 4 GiB", "Lower it."):
        raise error


@pytest.mark.parametrize(
    "error",
    [
        ValueError("RESOURCE_EXHAUSTED: Out of memory\nallocating 8 bytes."),
        RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes."),
    ],
)
def test_exhausted_memory_says_what_and_how_to_go_on(error):
    with pytest.raises(OutOfMemoryError) as found:
        fail(error)
    assert str(found.value) == (
        "the pool of 4 GiB does not fit into memory. Lower it. (RESOURCE_EXHAUSTED: Out"
        " of memory allocating 8 bytes.)"
    )


def test_python_without_memory_too():
    with pytest.raises(OutOfMemoryError, match="no memory is left"):
        fail(MemoryError())


@pytest.mark.parametrize(
    "error", [RuntimeError("bug"), ConfigError("a", 1, "2"), KeyError("k")]
)
def test_other_errors_pass(error):
    with pytest.raises(type(error)) as found:
        fail(error)
    assert found.value is error
