import jax.numpy as jnp
import numpy as np
import pytest

from models.config import ModelConfig
from models.inputs import StepInputs
from models.kv_cache import LayerCache
from models.layers.attention import Attention
from models.layers.rope import Rotation


def arguments():
    """What only passes through to the backend."""
    ints = jnp.zeros((3,), jnp.int32)
    inputs = StepInputs(ints, ints, ints, ints, ints, ints[None], ints)
    return inputs, LayerCache(keys=jnp.zeros((1,)), values=jnp.zeros((1,)))


@pytest.mark.parametrize("qk_norm", [False, True])
def test_heads_are_cut_out_of_the_fused_projection(small_config, qk_norm):
    """4 query and 2 key heads of 8: rows 0-31, 32-47 and 48-63 of the weight."""
    name = "Qwen3ForCausalLM" if qk_norm else "LlamaForCausalLM"
    config = ModelConfig.from_hf(small_config(name, head_dim=8))
    attention = Attention(config, 0, dtype=jnp.dtype("float32"))
    rng = np.random.default_rng(0)
    weight, x = rng.normal(size=(64, 32)), rng.normal(size=(3, 32))
    attention.qkv.weight[...] = jnp.asarray(weight, jnp.float32)
    attention.o.weight[...] = jnp.eye(32, dtype=jnp.float32)
    heads = (x @ weight.T).reshape(3, 8, 8)
    if qk_norm:
        q_scale, k_scale = rng.normal(size=(2, 8))
        attention.q_norm.scale[...] = jnp.asarray(q_scale, jnp.float32)
        attention.k_norm.scale[...] = jnp.asarray(k_scale, jnp.float32)
        size = np.sqrt((heads**2).mean(-1, keepdims=True) + 1e-6)
        heads[:, :4] = (heads / size)[:, :4] * q_scale
        heads[:, 4:6] = (heads / size)[:, 4:6] * k_scale
    still = Rotation(cos=jnp.ones((3, 8), "float32"), sin=jnp.zeros((3, 8), "float32"))
    told = []

    def attend(queries, keys, values, cache, inputs, *, scale, sliding_window):
        told.extend((queries, keys, values))
        return queries, LayerCache(keys=cache.keys + 1, values=cache.values + 2)

    out, cache = attention(jnp.asarray(x, jnp.float32), *arguments(), still, attend)
    wanted = heads[:, :4], heads[:, 4:6], heads[:, 6:]
    for found, part in zip(told, wanted, strict=True):
        np.testing.assert_allclose(found, part, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(out, wanted[0].reshape(3, 32), rtol=1e-4, atol=1e-4)
    assert (cache.keys, cache.values) == (1, 2)
