import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import llama, registry
from models.config import ModelConfig

VARIANTS = {
    "llama": {},
    # hidden / heads would be 8
    "llama_head_dim_eps": {"head_dim": 16, "rms_norm_eps": 1e-2},
    "llama_biases": {"attention_bias": True, "mlp_bias": True},
    "llama_one_kv_head_tied": {"num_key_value_heads": 1, "tie_word_embeddings": True},
    "mistral": {"architecture": "MistralForCausalLM", "sliding_window": 9},
    "mistral_no_window": {
        "architecture": "MistralForCausalLM",
        "sliding_window": None,
    },
    "qwen2": {"architecture": "Qwen2ForCausalLM"},
    "qwen2_window": {
        "architecture": "Qwen2ForCausalLM",
        "use_sliding_window": True,
        "sliding_window": 7,
        "max_window_layers": 1,
    },
    "qwen2_layer_types": {
        "architecture": "Qwen2ForCausalLM",
        "use_sliding_window": True,
        "sliding_window": 7,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "qwen3": {"architecture": "Qwen3ForCausalLM", "head_dim": 16},
    "qwen3_biases": {
        "architecture": "Qwen3ForCausalLM",
        "head_dim": 16,
        "attention_bias": True,
    },
}
IDS = np.random.default_rng(7).integers(0, 96, 60).tolist()


def assert_close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("variant", VARIANTS)
def test_ckp_05_prefill_and_decode_equal_transformers(
    variant, small_config, make_reference, make_harness
):
    config = small_config(**VARIANTS[variant])
    reference = make_reference(config)
    harness = make_harness(reference.config, reference.tensors)
    wanted = reference.logits(IDS[:43])
    assert_close(harness.run(IDS[:23]), wanted[:23])
    decoded = [harness.run([token])[0] for token in IDS[23:43]]
    assert_close(decoded, wanted[23:])


@pytest.mark.parametrize("variant", ["mistral", "qwen2_window", "qwen2_layer_types"])
def test_window_matters(variant, small_config, make_reference):
    """The comparison above would mean little if no token fell out of the window."""
    config = small_config(**VARIANTS[variant])
    windowed = make_reference(config).logits(IDS)
    config["sliding_window"] = 1000
    assert np.abs(windowed - make_reference(config).logits(IDS))[20:].min(-1).max() > 0


LLAMA3 = {
    "kind": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
ROPES = {
    "none": {"kind": "default"},
    "linear": {"kind": "linear", "factor": 2.0},
    "dynamic": {"kind": "dynamic", "factor": 2.0},
    "llama3": LLAMA3,
    "yarn": {
        "kind": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 32,
    },
}


@pytest.mark.parametrize("rope", ROPES)
def test_ckp_04_rope_spellings_equal_transformers(
    rope, small_config, make_reference, make_harness
):
    parameters = {k: v for k, v in ROPES[rope].items() if k != "kind"}
    kind = ROPES[rope]["kind"]
    new = {"rope_parameters": {"rope_theta": 5e5, "rope_type": kind, **parameters}}
    reference = make_reference(small_config(head_dim=16, **new))
    wanted = reference.logits(IDS)
    if rope in ("linear", "llama3", "yarn"):  # or nothing would be shown
        plain = {"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}
        unscaled = make_reference(small_config(head_dim=16, **plain)).logits(IDS)
        assert np.abs(wanted - unscaled)[17].max() > 0.1
    spellings = [
        new,
        {"rope_theta": 5e5, "rope_scaling": {"rope_type": kind, **parameters}},
        {"rope_theta": 5e5, "rope_scaling": {"type": kind, **parameters}},
    ]
    if rope == "none":
        spellings.append({"rope_theta": 5e5, "rope_scaling": None})
    for spelling in spellings:
        harness = make_harness(small_config(head_dim=16, **spelling), reference.tensors)
        assert_close(harness.run(IDS), wanted)


@pytest.mark.parametrize("kind", ["linear", "yarn"])
def test_ckp_04_positions_that_scaling_adds_equal_transformers(
    kind, small_config, make_reference, make_harness
):
    scaling = {"type": kind, "factor": 4.0}
    if kind == "yarn":
        scaling["original_max_position_embeddings"] = 16
    config = small_config(
        head_dim=16, max_position_embeddings=16, rope_scaling=scaling, rope_theta=1e4
    )
    reference = make_reference(config)
    harness = make_harness(config, reference.tensors)
    assert len(IDS) <= harness.config.max_position_embeddings == 64
    assert_close(harness.run(IDS), reference.logits(IDS))


def random_tensors(config: ModelConfig, seed=0) -> dict[str, np.ndarray]:
    """Weights for the tests that need no reference; norms near one."""
    rng = np.random.default_rng(seed)
    _, shapes = registry.abstract_parameters(config, "float32")
    sources = llama.parameter_sources(config)
    heads = (config.num_heads, config.num_kv_heads, config.num_kv_heads)
    tensors = {}
    for path, names in sources.items():
        whole = rng.normal("scale" in path, 0.3, shapes[path].shape)
        sizes = (
            np.array(heads) * config.head_dim
            if "qkv" in path
            else [whole.shape[0] // len(names)] * len(names)
        )
        pieces = np.split(whole.astype(np.float32), np.cumsum(sizes)[:-1])
        tensors.update(zip(names, pieces, strict=True))
    return tensors


@pytest.fixture
def llama_harness(small_config, make_harness):
    def make(dtype="float32", **keys):
        config = small_config(**keys)
        return make_harness(config, random_tensors(ModelConfig.from_hf(config)), dtype)

    return make


def test_chunks_give_the_logits_of_one_step(llama_harness):
    whole = llama_harness().run(IDS[:30])
    for sizes in ([1, 29], [7, 8, 15], [16, 14], [4] * 7 + [2]):
        harness, start, parts = llama_harness(), 0, []
        for size in sizes:
            parts.append(harness.run(IDS[start : start + size]))
            start += size
        np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-5, atol=1e-5)


def test_padding_tokens_change_nothing(llama_harness):
    plain, padded = llama_harness(), llama_harness()
    np.testing.assert_allclose(
        padded.run(IDS[:13]), plain.run(IDS[:13], width=13), rtol=1e-5, atol=1e-5
    )
    for found, wanted in zip(
        jax.tree.leaves(padded.kv), jax.tree.leaves(plain.kv), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_history_matters(llama_harness):
    changed = [IDS[0] + 1, *IDS[1:20]]
    difference = llama_harness().run(changed) - llama_harness().run(IDS[:20])
    assert np.abs(difference[-1]).max() > 0.1


@functools.partial(jax.jit, static_argnums=0)
def _hidden(graphdef, params, inputs, kv):
    return registry.bind(graphdef, params)(inputs, kv, _no_attention)[0]


def _no_attention(queries, keys, values, cache, inputs, *, scale, sliding_window):
    return queries, cache


def test_backend_is_told_scale_and_window_of_each_layer(llama_harness):
    harness = llama_harness(
        architecture="Qwen2ForCausalLM",
        use_sliding_window=True,
        sliding_window=7,
        max_window_layers=1,
    )
    told = []

    def attend(queries, keys, values, cache, inputs, *, scale, sliding_window):
        told.append((queries.shape, keys.shape, values.shape, scale, sliding_window))
        return queries, cache

    def trace(params, inputs, kv):
        return registry.bind(harness.graphdef, params)(inputs, kv, attend)

    jax.eval_shape(trace, harness.params, harness.inputs(IDS[:3]), harness.kv)
    shapes = ((3, 4, 8), (3, 2, 8), (3, 2, 8))
    assert told == [(*shapes, 8**-0.5, None), (*shapes, 8**-0.5, 7)]


def test_bfloat16_stays_bfloat16_and_near_float32(llama_harness):
    wide, narrow = llama_harness(), llama_harness("bfloat16")
    args = (narrow.graphdef, narrow.params, narrow.inputs(IDS[:9]), narrow.kv)
    assert _hidden(*args).dtype == jnp.bfloat16
    found, wanted = narrow.run(IDS[:20]), wide.run(IDS[:20])
    error = np.abs(found - wanted).mean() / np.abs(wanted).std()
    assert error < 0.1


def test_sources_cover_every_parameter(small_config):
    for keys in VARIANTS.values():
        config = ModelConfig.from_hf(small_config(**keys))
        _, shapes = registry.abstract_parameters(config, "float32")
        assert llama.parameter_sources(config).keys() == shapes.keys()
