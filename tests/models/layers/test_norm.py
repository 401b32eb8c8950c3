import jax.numpy as jnp
import numpy as np
import pytest

from models.layers.norm import RMSNorm, rms_norm


@pytest.mark.parametrize("shape", [(5, 16), (5, 3, 16)])
@pytest.mark.parametrize("eps", [1e-6, 1e-1])
def test_formula(shape, eps):
    rng = np.random.default_rng(0)
    x, scale = rng.normal(size=shape), rng.normal(size=16)
    wanted = x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * scale
    narrow = jnp.asarray(x, jnp.float32), jnp.asarray(scale, jnp.float32)
    np.testing.assert_allclose(rms_norm(*narrow, eps=eps), wanted, rtol=1e-5, atol=1e-6)


def test_sum_of_squares_is_float32():
    """1024 equal values: a bfloat16 sum would stop growing at 256."""
    x = jnp.full((1, 1024), 3.0, jnp.bfloat16)
    found = rms_norm(x, jnp.ones((1024,), jnp.bfloat16), eps=1e-6)
    assert found.dtype == jnp.bfloat16
    np.testing.assert_array_equal(found.astype(np.float32), 1.0)


def test_float16_square_does_not_overflow():
    x = jnp.full((1, 8), 1000.0, jnp.float16)
    found = rms_norm(x, jnp.ones((8,), jnp.float16), eps=1e-6)
    np.testing.assert_allclose(found.astype(np.float32), 1.0, rtol=1e-3)


def test_module_uses_its_own_scale_and_eps():
    norm = RMSNorm(4, eps=3.0, dtype=jnp.dtype("float32"))
    norm.scale[...] = jnp.asarray([1.0, 2.0, 3.0, 4.0], jnp.float32)
    np.testing.assert_allclose(
        norm(jnp.ones((1, 4), jnp.float32)), [[0.5, 1.0, 1.5, 2.0]], rtol=1e-6
    )
