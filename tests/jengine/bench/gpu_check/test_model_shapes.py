import pytest

from jengine.aot.cost import model_sizes
from jengine.bench.gpu_check.model_shapes import LLAMA_1B, LLAMA_8B, TINY
from models.config import ModelConfig


@pytest.mark.parametrize(
    ("config", "parameters", "kv_bytes"),
    [(LLAMA_1B, 1_235_814_400, 32 * 1024), (LLAMA_8B, 8_030_261_248, 128 * 1024)],
)
def test_sizes_are_those_that_the_models_state(config, parameters, kv_bytes):
    model = ModelConfig.from_hf(config)
    assert model_sizes(model).parameters == parameters
    assert model.kv_bytes_per_token(2) == kv_bytes


def test_the_tiny_one_is_tiny():
    assert model_sizes(ModelConfig.from_hf(TINY)).parameters < 100_000
