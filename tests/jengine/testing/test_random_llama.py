"""Random checkpoints load in transformers and depend on their whole prompt."""

import pathlib
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from jengine.testing.random_llama import MODEL_TYPES, write_random_checkpoint

PARAMETERS = "model.safetensors"


def load(path: pathlib.Path) -> Any:
    """Load with transformers and demand that every tensor is used and found."""
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM

    loaded: Any = AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, output_loading_info=True
    )
    model, info = loaded
    assert not any(info.values()), info
    return model


def greedy(model: Any, prompt: np.ndarray) -> list[int]:
    torch = pytest.importorskip("torch")
    out = model.generate(
        torch.from_numpy(prompt[None]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        do_sample=False,
        max_new_tokens=16,
        min_new_tokens=16,
        pad_token_id=0,
    )
    return out[0, len(prompt) :].tolist()


@pytest.mark.parametrize("architecture", MODEL_TYPES)
def test_uses_its_history(tmp_path: pathlib.Path, architecture: str) -> None:
    model = load(write_random_checkpoint(tmp_path, architecture))
    rng = np.random.default_rng(1)
    for _ in range(2):
        prompt = rng.integers(3, 320, size=12)
        other = prompt.copy()
        other[0] = 3 + (other[0] + 7) % 317
        output = greedy(model, prompt)
        assert output != greedy(model, other)
        assert len(set(output)) > 8


@pytest.mark.parametrize(
    ("architecture", "options", "present"),
    [
        ("LlamaForCausalLM", {}, []),
        (
            "LlamaForCausalLM",
            {"attention_bias": True, "mlp_bias": True, "head_dim": 32},
            ["self_attn.o_proj.bias", "mlp.down_proj.bias"],
        ),
        ("MistralForCausalLM", {"sliding_window": 8, "num_layers": 3}, []),
        ("Qwen2ForCausalLM", {"tie": True}, ["self_attn.q_proj.bias"]),
        (
            "Qwen3ForCausalLM",
            {"num_heads": 8, "num_kv_heads": 1},
            ["self_attn.q_norm.weight"],
        ),
    ],
)
def test_variants(
    tmp_path: pathlib.Path,
    architecture: str,
    options: dict[str, Any],
    present: list[str],
) -> None:
    write_random_checkpoint(tmp_path, architecture, **options)
    tensors = load_file(tmp_path / PARAMETERS)
    for name in present:
        assert np.std(tensors[f"model.layers.0.{name}"]) > 0.1
    assert ("lm_head.weight" in tensors) is not options.get("tie", False)
    load(tmp_path)


def test_norms_are_not_all_one(tmp_path: pathlib.Path) -> None:
    write_random_checkpoint(tmp_path)
    norm = load_file(tmp_path / PARAMETERS)["model.norm.weight"]
    assert 0.1 < np.std(norm) < 0.3
    assert np.mean(norm) == pytest.approx(1.0, abs=0.1)


def test_seed(tmp_path: pathlib.Path) -> None:
    def content(name: str, seed: int) -> bytes:
        root = write_random_checkpoint(tmp_path / name, seed=seed)
        return (root / PARAMETERS).read_bytes()

    assert content("a", 0) == content("b", 0) != content("c", 1)


def test_unknown_architecture(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="use one of LlamaForCausalLM"):
        write_random_checkpoint(tmp_path, "GPT2LMHeadModel")
