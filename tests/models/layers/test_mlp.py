import jax.numpy as jnp
import numpy as np
import pytest

from models.config import ModelConfig
from models.layers.mlp import MLP


@pytest.mark.parametrize("bias", [False, True])
def test_formula(small_config, bias):
    config = ModelConfig.from_hf(small_config(mlp_bias=bias))
    mlp = MLP(config, dtype=jnp.dtype("float32"))
    rng = np.random.default_rng(0)
    gate, up, down = (rng.normal(0, 0.3, s) for s in ((48, 32), (48, 32), (32, 48)))
    gate_b, up_b, down_b = (rng.normal(size=s) * bias for s in (48, 48, 32))
    mlp.gate_up.weight[...] = jnp.asarray(np.concatenate([gate, up]), jnp.float32)
    mlp.down.weight[...] = jnp.asarray(down, jnp.float32)
    if bias:
        both = np.concatenate([gate_b, up_b])
        mlp.gate_up.bias[...] = jnp.asarray(both, jnp.float32)
        mlp.down.bias[...] = jnp.asarray(down_b, jnp.float32)
    x = rng.normal(size=(5, 32))
    g = x @ gate.T + gate_b
    wanted = (g / (1 + np.exp(-g)) * (x @ up.T + up_b)) @ down.T + down_b
    found = mlp(jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
