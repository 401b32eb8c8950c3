"""The roofline's formulas, by hand on small numbers and on a public model."""

import pytest

from jengine.aot.cost import StepShape, Work, model_sizes, step_work
from models.config import ModelConfig

# M 8, 2 heads of 4, 1 KV head, F 16, V 10, 2 layers.
SMALL = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_hidden_layers": 2,
    "vocab_size": 10,
    "max_position_embeddings": 64,
}
MATRICES = 8 * (8 + 8) + 8 * 8 + 3 * 8 * 16  # qkv, o, gate, up and down
BODY = 2 * (MATRICES + 2 * 8) + 8  # two norms a layer, and the last one
HEAD = 10 * 8
KV = 2 * 4  # keys and values of a token in a layer


def sizes(**changes):
    return model_sizes(ModelConfig.from_hf(SMALL | changes))


def test_parameters_are_counted():
    found = sizes()
    assert found.matrices == 2 * MATRICES
    assert found.body == BODY
    assert found.head == found.embedding == HEAD
    assert found.parameters == BODY + 2 * HEAD


def test_a_tied_head_is_counted_once():
    assert sizes(tie_word_embeddings=True).parameters == BODY + HEAD


def test_biases_and_head_norms_are_counted():
    qwen = sizes(architectures=["Qwen2ForCausalLM"])
    assert qwen.body == BODY + 2 * (8 + 8)
    qwen3 = sizes(architectures=["Qwen3ForCausalLM"], head_dim=4)
    assert qwen3.body == BODY + 2 * 2 * 4
    llama = sizes(attention_bias=True, mlp_bias=True)
    assert llama.body == BODY + 2 * (16 + 8 + 2 * 16 + 8)


@pytest.mark.parametrize(
    ("name", "parameters"), [("8b", 8_030_261_248), ("1b", 1_235_814_400)]
)
def test_public_models_have_their_published_size(config_of, name, parameters):
    found = model_sizes(ModelConfig.from_hf(config_of(name)))
    assert found.parameters == parameters


def test_a_decode_step_reads_weights_and_caches():
    rows, context = 3, 7
    work = step_work(sizes(), StepShape(rows, rows, context), itemsize=2)
    read, written = 2 * rows * context * KV, 2 * rows * KV
    assert work.bytes_moved == 2 * (BODY + HEAD + rows * 8 + read + written)
    attention = 4 * 8 * 2 * rows * context
    assert work.flops == 2 * rows * 2 * MATRICES + 2 * rows * HEAD + attention


def test_without_logits_the_head_stays_where_it_is():
    whole = step_work(sizes(), StepShape(3, 3, 7), itemsize=2)
    forward = step_work(sizes(), StepShape(3, 0, 7), itemsize=2)
    head = step_work(sizes(), StepShape(0, 3, None), itemsize=2)
    assert head == Work(2 * HEAD, 2 * 3 * HEAD)
    assert whole.bytes_moved == forward.bytes_moved + head.bytes_moved
    assert whole.flops == forward.flops + head.flops


def test_a_prompt_reads_its_own_keys_and_sees_half_of_the_pairs():
    tokens = 5
    work = step_work(sizes(), StepShape(tokens, 0, None), itemsize=4)
    cache = 2 * 2 * tokens * KV  # written and read, two layers
    assert work.bytes_moved == 4 * (BODY + tokens * 8 + cache)
    assert work.flops == 2 * tokens * 2 * MATRICES + 4 * 8 * 2 * 15


def test_windows_bound_what_is_seen():
    window = {"architectures": ["MistralForCausalLM"], "sliding_window": 3}
    decode = step_work(sizes(**window), StepShape(1, 0, 7), itemsize=1)
    short = step_work(sizes(), StepShape(1, 0, 3), itemsize=1)
    assert decode == short
    prompt = step_work(sizes(**window), StepShape(5, 0, None), itemsize=1)
    assert prompt.flops == 2 * 5 * 2 * MATRICES + 4 * 8 * 2 * (1 + 2 + 3 + 3 + 3)


def test_cards_share_everything():
    one = step_work(sizes(), StepShape(4, 4, 8), itemsize=2)
    two = step_work(sizes(), StepShape(4, 4, 8), itemsize=2, devices=2)
    assert two == Work(one.bytes_moved // 2, one.flops // 2)


def test_the_slower_of_both_decides():
    work = Work(bytes_moved=100, flops=1000)
    assert work.seconds(bandwidth=10, flops_per_s=1000) == 10
    assert work.seconds(bandwidth=1000, flops_per_s=10) == 100


def test_an_8b_model_decodes_at_bandwidth(config_of):
    found = model_sizes(ModelConfig.from_hf(config_of("8b")))
    work = step_work(found, StepShape(1, 1, 4096), itemsize=2)
    # 15.0 GB of weights but the embedding, 4096 tokens of 128 KiB each.
    assert work.bytes_moved == pytest.approx(15.01e9 + 4097 * 131072, rel=1e-3)
    assert work.seconds(4.8e12, 989e12) == pytest.approx(3.24e-3, rel=1e-2)
