import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.layers.linear import Linear, matmul


def random(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("num_tokens", [1, 5, 65])
@pytest.mark.parametrize("bias", [False, True])
def test_linear(num_tokens, bias):
    x, weight, added = random(num_tokens, 6), random(4, 6), random(4)
    linear = Linear(6, 4, bias=bias, dtype=jnp.dtype("float32"))
    linear.weight[...] = jnp.asarray(weight)
    if bias:
        linear.bias[...] = jnp.asarray(added)
    wanted = x.astype(np.float64) @ weight.T + (added if bias else 0)
    np.testing.assert_allclose(linear(jnp.asarray(x)), wanted, rtol=1e-5, atol=1e-5)


def test_bfloat16_in_bfloat16_out():
    x, weight = jnp.asarray(random(3, 6)), jnp.asarray(random(4, 6))
    found = matmul(x.astype(jnp.bfloat16), weight.astype(jnp.bfloat16))
    assert found.dtype == jnp.bfloat16
    np.testing.assert_allclose(found.astype(np.float32), x @ weight.T, atol=0.1)


@pytest.mark.parametrize("num_tokens", [1, 5, 65])
def test_float32_asks_for_float32(num_tokens):
    """On an NVIDIA GPU the default would be TF32."""
    assert "HIGHEST" in lowered(jnp.float32, num_tokens)
    assert "HIGHEST" not in lowered(jnp.bfloat16, num_tokens)


@pytest.mark.parametrize(("num_tokens", "weight_first"), [(1, 0), (5, 1), (65, 0)])
def test_few_rows_come_second_on_the_cpu(num_tokens, weight_first):
    text = lowered(jnp.float32, num_tokens)
    assert text.count("stablehlo.dot_general") == 1
    assert text.count("optimization_barrier") == weight_first


def lowered(dtype, num_tokens):
    x = jax.ShapeDtypeStruct((num_tokens, 6), dtype)
    weight = jax.ShapeDtypeStruct((4, 6), dtype)
    return jax.jit(matmul).trace(x, weight).lower(lowering_platforms=("cpu",)).as_text()


def test_other_platforms_see_the_plain_product():
    x = jax.ShapeDtypeStruct((5, 6), jnp.float32)
    weight = jax.ShapeDtypeStruct((4, 6), jnp.float32)
    traced = jax.jit(matmul).trace(x, weight)
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("stablehlo.dot_general") == 1
    assert "optimization_barrier" not in text
