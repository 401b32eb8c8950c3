"""The batches that llama.cpp is given, by a stand-in that adds up what it sees."""

import ctypes
import sys
import types

import numpy as np
import pytest

from jengine.bench.compare.engines import llama_cpp_engine
from jengine.bench.compare.engines.llama_cpp_engine import load

VOCAB = 50


class Lib(types.ModuleType):
    """The calls of llama.cpp that are used; a sequence's next token is its sum."""

    __version__ = "0.3"
    GGML_TYPE_F32 = 0

    def __init__(self):
        super().__init__("llama_cpp")
        self.sums, self.lengths, self.logits, self.calls = {}, {}, {}, []

    def llama_backend_init(self): ...

    def llama_model_default_params(self):
        return types.SimpleNamespace()

    llama_context_default_params = llama_model_default_params

    def llama_model_load_from_file(self, path, params):
        return path == b"good.gguf"

    def llama_init_from_model(self, model, params):
        self.params = params
        return params

    def llama_model_get_vocab(self, model): ...

    def llama_vocab_n_tokens(self, vocab):
        return VOCAB

    def llama_batch_init(self, num_tokens, embd, num_seqs):
        return types.SimpleNamespace(
            n_tokens=0,
            token=[0] * num_tokens,
            pos=[0] * num_tokens,
            n_seq_id=[0] * num_tokens,
            seq_id=[[0] for _ in range(num_tokens)],
            logits=[0] * num_tokens,
        )

    def llama_get_memory(self, context):
        return "memory"

    def llama_memory_clear(self, memory, data):
        self.sums, self.lengths = {}, {}

    def llama_decode(self, context, batch):
        self.calls.append(batch.n_tokens)
        self.logits = {}
        for i in range(batch.n_tokens):
            sequence = batch.seq_id[i][0]
            assert batch.n_seq_id[i] == 1
            assert batch.pos[i] == self.lengths.get(sequence, 0)
            self.lengths[sequence] = batch.pos[i] + 1
            self.sums[sequence] = self.sums.get(sequence, 0) + batch.token[i]
            if batch.logits[i]:
                row = np.zeros(VOCAB, np.float32)
                row[self.sums[sequence] % VOCAB] = 1.0
                self.logits[i] = row
        return 0

    def llama_get_logits_ith(self, context, i):
        return self.logits[i].ctypes.data_as(ctypes.POINTER(ctypes.c_float))


@pytest.fixture
def lib(monkeypatch):
    lib = Lib()
    monkeypatch.setitem(sys.modules, "llama_cpp", lib)
    monkeypatch.setattr(llama_cpp_engine, "_BATCH", 4)
    return lib


def options(**changes):
    usual = {
        "gguf": "good.gguf",
        "threads": 2,
        "max_num_seqs": 3,
        "max_model_len": 10,
        "engine": {"n_ubatch": 16},
    }
    return usual | changes


def test_prompts_in_chunks_then_a_token_of_each(lib):
    engine = load(options())
    for _ in range(2):  # nothing is left of an earlier call
        lib.calls.clear()
        found = engine.generate([[1, 2, 3], [10], [4, 4]], 3)
        assert found == [[6, 12, 24], [10, 20, 40], [8, 16, 32]]
        assert lib.calls == [4, 2, 3, 3]  # 6 prompt tokens, then 3 rows twice


def test_what_llama_cpp_is_told(lib):
    engine = load(options())
    assert vars(lib.params) == {
        "n_seq_max": 3,
        "n_ctx": 30,
        "n_batch": 4,
        "n_threads": 2,
        "n_threads_batch": 2,
        "type_k": 0,
        "type_v": 0,
        "n_ubatch": 16,
    }
    assert engine.versions() == {"version": "0.3", "versions": {}}


@pytest.mark.parametrize(
    ("gguf", "message"), [(None, "GGUF files only"), ("bad.gguf", "cannot load bad")]
)
def test_a_model_that_it_cannot_read(lib, gguf, message):
    with pytest.raises(ValueError, match=message):
        load(options(gguf=gguf))


def test_a_failed_call_is_an_error(lib, monkeypatch):
    engine = load(options())
    monkeypatch.setattr(lib, "llama_decode", lambda context, batch: 1)
    with pytest.raises(RuntimeError, match="llama_decode failed with 1"):
        engine.generate([[1]], 1)
