"""How vLLM is called; it is not installed where tests run."""

import importlib.metadata
import sys
import types

import pytest

from jengine.bench.compare.engines.vllm_engine import load
from jengine.sampling_params import SamplingParams


@pytest.fixture
def made(monkeypatch):
    """A module `vllm` whose LLM repeats a prompt's first token; what it was given."""
    given = []

    class LLM:
        def __init__(self, **options):
            given.append(options)

        def generate(self, prompts, params, use_tqdm):
            assert use_tqdm is False
            assert params.ignore_eos
            assert params.temperature == 0.0
            return [
                types.SimpleNamespace(
                    outputs=[
                        types.SimpleNamespace(
                            token_ids=(p["prompt_token_ids"][0],) * params.max_tokens
                        )
                    ]
                )
                for p in prompts
            ]

    module = types.ModuleType("vllm")
    vars(module).update(LLM=LLM, SamplingParams=SamplingParams, __version__="0.32")
    monkeypatch.setitem(sys.modules, "vllm", module)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: f"{name}-9")
    return given


def test_it_is_asked_like_any_other(made):
    engine = load(
        {
            "folder": "some/model",
            "dtype": "float32",
            "max_num_seqs": 4,
            "max_model_len": 192,
            "engine": {"enforce_eager": True, "max_model_len": 256},
        }
    )
    assert made == [
        {
            "model": "some/model",
            "dtype": "float32",
            "skip_tokenizer_init": True,
            "max_num_seqs": 4,
            "max_model_len": 256,
            "enforce_eager": True,
        }
    ]
    assert engine.versions() == {"version": "0.32", "versions": {"torch": "torch-9"}}
    assert engine.generate([[7, 8], [9]], 3) == [[7, 7, 7], [9, 9, 9]]
