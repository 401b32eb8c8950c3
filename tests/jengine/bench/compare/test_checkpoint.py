"""GGUF checkpoints in the forms that other engines read; transformers is the oracle."""

import json

import gguf
import numpy as np
import pytest

from jengine.bench.compare import checkpoint
from jengine.bench.compare.checkpoint import (
    float32_gguf,
    hf_config,
    hf_folder,
    vocab_size_of,
)
from jengine.errors import CheckpointError, UnsupportedError

V, M, F, L = 64, 32, 64, 1
SHAPES = {
    "token_embd": (V, M),
    "output_norm": (M,),
    "blk.0.attn_norm": (M,),
    "blk.0.ffn_norm": (M,),
    "blk.0.attn_q": (M, M),
    "blk.0.attn_k": (M // 2, M),
    "blk.0.attn_v": (M // 2, M),
    "blk.0.attn_output": (M, M),
    "blk.0.ffn_gate": (F, M),
    "blk.0.ffn_up": (F, M),
    "blk.0.ffn_down": (M, F),
}


@pytest.fixture
def gguf_file(tmp_path):
    """A Llama of one layer, quantised to eight bits."""
    path = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(L)
    writer.add_context_length(128)
    writer.add_embedding_length(M)
    writer.add_feed_forward_length(F)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(5e5)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"t{i}" for i in range(V)])
    writer.add_token_types([1] * V)
    writer.add_eos_token_id(2)
    rng = np.random.default_rng(0)
    for name, shape in SHAPES.items():
        values = rng.normal(len(shape) == 1, 0.5, shape).astype(np.float32)
        kind = gguf.GGMLQuantizationType["Q8_0" if len(shape) == 2 else "F32"]
        raw = gguf.quantize(values, kind)
        writer.add_tensor(f"{name}.weight", raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_folder_is_used_as_it_is(f2_dir, tmp_path):
    assert hf_folder(str(f2_dir), tmp_path / "cache") == f2_dir
    assert not (tmp_path / "cache").exists()
    assert float32_gguf(str(f2_dir), tmp_path / "cache") is None
    assert vocab_size_of(f2_dir) == 320


def test_gguf_becomes_the_model_that_transformers_makes_of_it(gguf_file, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = hf_folder(str(gguf_file), tmp_path / "cache")
    found = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32
    )
    wanted = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file=gguf_file.name, dtype=torch.float32
    )
    assert found.config.eos_token_id == 2
    ids = torch.arange(20)[None]
    np.testing.assert_array_equal(
        found(ids).logits.detach().numpy(), wanted(ids).logits.detach().numpy()
    )


def test_it_is_written_once(gguf_file, tmp_path, monkeypatch):
    folder = hf_folder(str(gguf_file), tmp_path / "cache")
    assert vocab_size_of(folder) == V
    monkeypatch.setattr(checkpoint, "_write_hf", None)
    assert hf_folder(str(gguf_file), tmp_path / "cache") == folder
    assert [path.name for path in folder.parent.iterdir()] == ["hf"]


def test_what_breaks_off_leaves_nothing(gguf_file, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(checkpoint, "_write_hf", fail)
    with pytest.raises(OSError, match="disk full"):
        hf_folder(str(gguf_file), tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*/*"))


def test_float32_gguf_holds_the_same_values(gguf_file, tmp_path):
    path = float32_gguf(str(gguf_file), tmp_path / "cache")
    before, after = gguf.GGUFReader(gguf_file), gguf.GGUFReader(path)
    assert len(after.tensors) == len(SHAPES)
    for old, new in zip(before.tensors, after.tensors, strict=True):
        assert (new.name, list(new.shape)) == (old.name, list(old.shape))
        assert new.tensor_type == gguf.GGMLQuantizationType.F32
        wanted = gguf.dequantize(old.data, old.tensor_type)
        np.testing.assert_array_equal(new.data, wanted)
    kept = set(before.fields) - {"general.file_type"}
    for name in kept - {n for n in kept if n.startswith("GGUF.")}:
        assert after.fields[name].contents() == before.fields[name].contents()
    assert after.fields["general.file_type"].contents() == gguf.LlamaFileType.ALL_F32


def test_what_a_config_cannot_say_is_refused():
    rope = {"rope_type": "frequency_factors", "rope_theta": 1e4}
    with pytest.raises(UnsupportedError, match="rope scaling as factors"):
        hf_config({"architectures": ["LlamaForCausalLM"], "rope_parameters": rope})
    plain = {"rope_type": "default", "rope_theta": 1e4}
    with pytest.raises(CheckpointError, match="Unknown cannot be written"):
        hf_config({"architectures": ["Unknown"], "rope_parameters": plain})
    config = {"architectures": ["Qwen3ForCausalLM"], "rope_parameters": plain}
    assert json.loads(json.dumps(hf_config(config)))["model_type"] == "qwen3"
