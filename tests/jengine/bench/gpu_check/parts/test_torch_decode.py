import json
import sys
import types

import pytest

from jengine.bench.gpu_check.parts import torch_decode
from jengine.bench.gpu_check.recorder import Recorder


@pytest.fixture
def run_part():
    lines = []

    def run(**options):
        torch_decode.run(Recorder(lines.append, seconds=100.0, **options))
        return [json.loads(line) for line in lines]

    return run


def test_without_torch_each_load_is_skipped_with_the_reason(run_part, monkeypatch):
    monkeypatch.setattr(torch_decode.importlib.util, "find_spec", lambda name: None)
    events = run_part()
    assert {event["reason"] for event in events} == {"torch is not installed"}
    assert {event["status"] for event in events} == {"skipped"}
    assert len(events) == 2 * 4 * 2  # models, loads, caches
    assert "Llama-3.1-8B, batch 256, static cache" in {e["case"] for e in events}


def test_torch_without_cuda_is_no_use_but_for_a_smoke_test(monkeypatch):
    torch = types.ModuleType("torch")
    torch.__version__ = "2.0+cpu"
    torch.cuda = types.SimpleNamespace(is_available=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(torch_decode.importlib.util, "find_spec", lambda name: name)
    missing = torch_decode.what_is_missing(smoke=False)
    assert missing == "torch 2.0+cpu sees no GPU"
    assert torch_decode.what_is_missing(smoke=True) is None
