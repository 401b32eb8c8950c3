import pytest

from jengine.checkpoint.checkpoint import TensorReader
from jengine.checkpoint.no_tensors import NoTensors
from jengine.errors import CheckpointError


def test_it_is_a_reader_without_names():
    tensors = NoTensors("/a/model")
    assert isinstance(tensors, TensorReader)
    assert list(tensors.names()) == []


@pytest.mark.parametrize("method", ["shape", "dtype", "location", "read"])
def test_who_reads_is_told_why_there_is_nothing(method):
    with pytest.raises(CheckpointError, match="/a/model was opened without weights"):
        getattr(NoTensors("/a/model"), method)("lm_head.weight")
