import numpy as np
import pytest

from jengine.checkpoint import open_checkpoint


@pytest.mark.parametrize(
    ("keys", "stored", "wanted"),
    [
        ({"dtype": "bfloat16"}, np.float32, "bfloat16"),
        ({"torch_dtype": "float16"}, np.float32, "float16"),
        ({"torch_dtype": "torch.float16"}, np.float32, "float16"),
        ({"dtype": "bfloat16", "torch_dtype": "float32"}, np.float32, "bfloat16"),
        ({}, np.float16, "float16"),
        ({"torch_dtype": None}, np.float32, "float32"),
    ],
)
def test_ckp_07_auto_dtype(write_folder, make_config, keys, stored, wanted):
    folder = write_folder(make_config(**keys), {"a": np.zeros(2, stored)})
    assert open_checkpoint(folder).dtype == wanted
