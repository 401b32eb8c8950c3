import math

import jax.numpy as jnp
import numpy as np
import pytest

from models.layers.rope import inverse_frequencies, rotate, rotation
from models.rope_config import RopeConfig, rope_from_hf

DEFAULT = RopeConfig()
HEAD_DIM = 64


def heads(num_tokens, num_heads=2, seed=0):
    shape = (num_tokens, num_heads, HEAD_DIM)
    x = np.random.default_rng(seed).normal(size=shape)
    return jnp.asarray(x, jnp.float32)


def turned(x, positions, rope=DEFAULT):
    return rotate(x, rotation(rope, HEAD_DIM, jnp.asarray(positions, jnp.int32)))


def test_formula_with_complex_numbers():
    x, positions = heads(4), np.array([0, 1, 17, 8000])
    frequencies = 10_000.0 ** (-np.arange(32) / 32)
    wide = np.asarray(x, np.float64)
    turn = np.exp(1j * positions[:, None, None] * frequencies)
    z = (wide[..., :32] + 1j * wide[..., 32:]) * turn
    wanted = np.concatenate([z.real, z.imag], axis=-1)
    np.testing.assert_allclose(turned(x, positions), wanted, atol=5e-3)
    np.testing.assert_allclose(turned(x, positions)[:3], wanted[:3], atol=1e-5)


def test_position_zero_changes_nothing():
    np.testing.assert_array_equal(turned(heads(1), [0]), heads(1))


def test_scores_depend_on_distance_only():
    query, key = heads(1, seed=1), heads(1, seed=2)

    def score(query_at, key_at):
        return float(jnp.vdot(turned(query, [query_at]), turned(key, [key_at])))

    assert score(107, 100) == pytest.approx(score(7, 0), abs=1e-3)
    assert abs(score(7, 0) - score(8, 0)) > 1e-2


def test_angles_of_bfloat16_heads_are_float32():
    """At position 1001 a bfloat16 position would be 1000."""
    x = heads(1).astype(jnp.bfloat16)
    found = turned(x, [1001])
    assert found.dtype == jnp.bfloat16
    exact = turned(x.astype(jnp.float32), [1001])
    np.testing.assert_allclose(found.astype(np.float32), exact, rtol=1e-2, atol=1e-3)


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
CASES = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 3.0},
    "dynamic": {"rope_type": "dynamic", "factor": 3.0},
    "llama3": LLAMA3,
    "llama3_other": LLAMA3 | {"factor": 32.0, "low_freq_factor": 2.0},
    "yarn": YARN,
    "yarn_betas": YARN | {"beta_fast": 20.0, "beta_slow": 2.0},
    "yarn_exact": YARN | {"truncate": False},
    "yarn_factor": YARN | {"attention_factor": 0.8},
    "yarn_mscale": YARN | {"mscale": 0.7, "mscale_all_dim": 1.5},
}


@pytest.mark.parametrize("theta", [1e4, 5e5])
@pytest.mark.parametrize("case", CASES)
def test_ckp_04_frequencies_equal_transformers(case, theta):
    pytest.importorskip("torch")
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    parameters = {"rope_theta": theta, **CASES[case]}
    config = LlamaConfig(
        head_dim=HEAD_DIM, max_position_embeddings=32768, rope_parameters=parameters
    )
    reference = LlamaRotaryEmbedding(config)
    rope = rope_from_hf(
        {"max_position_embeddings": 32768, "rope_parameters": parameters}
    )
    found = inverse_frequencies(rope, HEAD_DIM)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, reference.inv_freq.numpy(), rtol=2e-6)
    assert rope.attention_factor == pytest.approx(reference.attention_scaling, rel=1e-6)


def test_llama3_regions():
    """The fast frequencies stay, the slow ones are divided, some lie between."""
    rope = rope_from_hf({"max_position_embeddings": 1, "rope_parameters": LLAMA3})
    plain = inverse_frequencies(DEFAULT, HEAD_DIM)
    ratio = plain / inverse_frequencies(rope, HEAD_DIM)
    assert ratio[0] == 1
    assert ratio[-1] == pytest.approx(8)
    assert (np.diff(ratio) > -1e-6).all()
    assert ((ratio > 1.01) & (ratio < 7.9)).any()


def test_attention_factor_scales_the_turn():
    rope = RopeConfig(
        rope_type="yarn",
        attention_factor=0.5,
        factor=1.0,
        original_max_position_embeddings=4096,
    )
    np.testing.assert_allclose(
        jnp.linalg.norm(turned(heads(3), [0, 5, 9], rope)),
        0.5 * jnp.linalg.norm(heads(3)),
        rtol=1e-5,
    )


def test_yarn_with_an_empty_ramp_is_a_step():
    rope = RopeConfig(
        rope_type="yarn",
        factor=4.0,
        beta_fast=1e9,
        beta_slow=1e8,
        original_max_position_embeddings=4096,
    )
    found = inverse_frequencies(rope, HEAD_DIM)
    assert np.isfinite(found).all()


def test_frequency_factors_divide():
    factors = tuple(float(1 + i) for i in range(HEAD_DIM // 2))
    rope = RopeConfig(rope_type="frequency_factors", frequency_factors=factors)
    plain = inverse_frequencies(DEFAULT, HEAD_DIM)
    np.testing.assert_allclose(
        inverse_frequencies(rope, HEAD_DIM), plain / factors, rtol=1e-6
    )


def test_plain_frequencies():
    found = inverse_frequencies(RopeConfig(theta=100.0), 4)
    np.testing.assert_allclose(found, [1.0, 0.1], rtol=1e-6)
    assert math.isclose(found[0], 1.0)
