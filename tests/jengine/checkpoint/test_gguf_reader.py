import gguf
import numpy as np
import pytest

from jengine.checkpoint import load_parameters, open_checkpoint
from jengine.checkpoint.gguf_reader import huggingface_name, unpermute
from jengine.errors import CheckpointError, UnsupportedError
from jengine.gguf_header import read_header

ARCHITECTURES = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}


def config_of(make_config, arch, **keys):
    name = f"{ARCHITECTURES[arch]}ForCausalLM"
    return make_config(architectures=[name], head_dim=16, **keys)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0"])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_ckp_06_tensors_equal_the_dequantised_originals(
    arch, kind, write_gguf, make_config, make_tensors
):
    config = config_of(make_config, arch)
    tensors = make_tensors(config)
    reader = open_checkpoint(write_gguf(arch, config, tensors, kind)).tensors
    assert set(reader.names()) == set(tensors)
    for name, original in tensors.items():
        stored = gguf.GGMLQuantizationType[kind if original.ndim > 1 else "F32"]
        # Rows are quantised one by one, so their order does not matter.
        wanted = gguf.dequantize(gguf.quantize(original, stored), stored)
        found = reader.read(name)
        assert reader.shape(name) == original.shape
        assert reader.dtype(name) == found.dtype
        np.testing.assert_array_equal(found.astype(np.float32), wanted, err_msg=name)


def test_ckp_06_biases_of_llama_are_unpermuted_too(
    write_gguf, make_config, make_tensors
):
    config = config_of(make_config, "llama", attention_bias=True)
    tensors = make_tensors(config)
    reader = open_checkpoint(write_gguf("llama", config, tensors)).tensors
    for name, original in tensors.items():
        np.testing.assert_array_equal(reader.read(name), original, err_msg=name)


def test_formats(write_gguf, make_config, make_tensors):
    config = config_of(make_config, "llama")
    for kind, wanted in (("F16", "float16"), ("BF16", "bfloat16"), ("Q8_0", "float32")):
        checkpoint = open_checkpoint(
            write_gguf("llama", config, make_tensors(config), kind)
        )
        assert str(checkpoint.tensors.dtype("lm_head.weight")) == wanted
        assert checkpoint.tensors.location("lm_head.weight") == checkpoint.path


def test_unpermute_by_hand():
    """Two heads of four rows: pairs (0, 2), (1, 3) lie side by side in the file."""
    stored = np.array([[0], [2], [1], [3], [4], [6], [5], [7]])
    np.testing.assert_array_equal(unpermute(stored, 2)[:, 0], np.arange(8))
    np.testing.assert_array_equal(unpermute(stored[:, 0], 2), np.arange(8))


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("output.weight", "lm_head.weight"),
        ("blk.12.attn_q_norm.weight", "model.layers.12.self_attn.q_norm.weight"),
        ("blk.0.attn_output.bias", "model.layers.0.self_attn.o_proj.bias"),
        ("blk.0.ffn_gate_exps.weight", "blk.0.ffn_gate_exps.weight"),
        ("something", "something"),
    ],
)
def test_names(stored, wanted):
    assert huggingface_name(stored) == wanted


def test_unknown_tensor_is_an_error_at_load(
    write_gguf, make_config, make_tensors, make_targets
):
    config = config_of(make_config, "llama")
    extra = {"blk.0.surprise.weight": np.zeros(4, np.float32)}
    path = write_gguf("llama", config, make_tensors(config), extra=extra)
    checkpoint = open_checkpoint(path)
    with pytest.raises(ValueError, match=r"blk\.0\.surprise\.weight is unknown"):
        load_parameters(checkpoint, make_targets(checkpoint.config), "float32")


def test_rope_factors_are_no_weights(
    write_gguf, make_config, make_tensors, make_targets
):
    config = config_of(make_config, "llama")
    extra = {"rope_freqs.weight": np.ones(8, np.float32)}
    checkpoint = open_checkpoint(
        write_gguf("llama", config, make_tensors(config), extra=extra)
    )
    load_parameters(checkpoint, make_targets(checkpoint.config), "float32")


def test_unknown_number_format_is_named(write_gguf, make_config, make_tensors):
    config = config_of(make_config, "llama")
    path = write_gguf("llama", config, make_tensors(config))
    data = path.read_bytes()
    name = b"output_norm.weight"
    at = data.index(name) + len(name) + 4 + 8  # one axis, its size, then the type
    path.write_bytes(data[:at] + (250).to_bytes(4, "little") + data[at + 4 :])
    with pytest.raises(UnsupportedError, match=r"output_norm\.weight.*format 250"):
        open_checkpoint(path)


def test_ckp_03_every_cut_in_the_data_names_file_and_tensor(
    write_gguf, make_config, make_tensors
):
    path = write_gguf("llama", make_config(), make_tensors(make_config()))
    whole = path.read_bytes()
    open_checkpoint(path)
    places = read_header(path).tensors
    last = max(places, key=lambda name: places[name].offset)
    end = places[last].offset + 4 * int(np.prod(places[last].shape))
    for size in (end - 1, end - 4, places[last].offset + 1, places[last].offset):
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match=rf"{path.name}: tensor {last} ends"):
            open_checkpoint(path)


def test_head_is_tied_when_the_file_has_none(write_gguf, make_config, make_tensors):
    tied = make_config(tie_word_embeddings=True)
    assert read_header(write_gguf("llama", tied, make_tensors(tied))).is_tied()
    untied = make_config()
    assert not read_header(write_gguf("llama", untied, make_tensors(untied))).is_tied()
