"""From a config to an engine; what cannot be put together says why."""

import json
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jengine import SamplingParams
from jengine.assembly import Assembled, assemble
from jengine.config import EngineConfig
from jengine.engine import LLMEngine
from jengine.errors import CheckpointError, ConfigError, JengineError, UnsupportedError
from jengine.testing import (
    write_byte_tokenizer,
    write_random_checkpoint,
    write_sentencepiece_tokenizer,
)

GENERATION = {"temperature": 0.6, "top_p": 0.9, "eos_token_id": [2, 7]}

# On an image for GPUs that lacks some of our packages.
BARE = """
import pkgutil, sys

class Lacking:
    def find_spec(self, name, path=None, target=None):
        package = name.partition(".")[0]
        if package in ("gguf", "platformdirs", "llguidance"):
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)

sys.meta_path.insert(0, Lacking())
import jengine.bench.gpu_check as gpu_check
for found in pkgutil.walk_packages(gpu_check.__path__, "jengine.bench.gpu_check."):
    if not found.name.endswith("__main__"):
        __import__(found.name)

from jengine import LLM, SamplingParams, StructuredOutputsParams
llm = LLM(sys.argv[1], num_gpu_blocks_override=20, max_model_len=64, max_num_seqs=2)
choice = StructuredOutputsParams(choice=["yes", "no"])
try:
    llm.generate("ab", SamplingParams(structured_outputs=choice))
except ValueError as error:
    print(error)
llm.llm_engine.add_request("plain", "ab", SamplingParams())
print(llm.stats.num_waiting)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    write_random_checkpoint(folder, generation_config=GENERATION)
    write_byte_tokenizer(folder)
    return folder


@pytest.fixture
def copy(folder, tmp_path):
    """A copy of the checkpoint that a test may spoil."""
    return shutil.copytree(folder, tmp_path / "copy")


def put_together(folder, **options) -> Assembled:
    small = {
        "num_gpu_blocks_override": 20,
        "max_model_len": 64,
        "max_num_seqs": 2,
        "compilation_cache_dir": False,
    }
    return assemble(EngineConfig(model=str(folder), **(small | options)))


def end_tokens(assembled):
    return assembled.engine.inputs._end_tokens


def test_the_parts_agree(folder):
    engine, config, _ = put_together(folder, block_size=8, max_logprobs=-1)
    assert isinstance(engine, LLMEngine)
    limits = engine.runner.limits
    assert (limits.num_blocks, limits.block_size, limits.max_num_seqs) == (20, 8, 2)
    assert engine.stats.num_blocks == 19
    assert limits.max_model_len == engine.inputs.max_total_tokens == 64
    assert limits.max_logprobs == config.vocab_size == 320
    assert config.asked.model == str(folder)


def test_a_pool_smaller_than_the_model_limits_requests(folder):
    engine, config, _ = put_together(folder, num_gpu_blocks_override=3)
    assert config.max_model_len == 64
    assert engine.inputs.max_total_tokens == engine.runner.limits.max_model_len == 32


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, GENERATION),
        ({"generation_config": "vllm"}, {}),
        (
            {"override_generation_config": {"temperature": 0.1, "top_k": 5}},
            GENERATION | {"temperature": 0.1, "top_k": 5},
        ),
        (
            {
                "generation_config": "vllm",
                "override_generation_config": {"top_k": 5},
            },
            {"top_k": 5},
        ),
    ],
)
def test_generation_config(folder, options, expected):
    assembled = put_together(folder, **options)
    assert assembled.generation_config == expected
    # 257 is the tokenizer's own; the checkpoint's others end an output too.
    assert end_tokens(assembled) == (257, {2, 7})


def test_generation_config_of_another_folder(folder, tmp_path):
    (tmp_path / "generation_config.json").write_text(json.dumps({"top_k": 9}))
    assembled = put_together(folder, generation_config=str(tmp_path))
    assert assembled.generation_config == {"top_k": 9}


def test_a_generation_config_that_is_not_there(folder, tmp_path):
    with pytest.raises(ConfigError, match=r"generation_config is .*'auto', 'vllm'"):
        put_together(folder, generation_config=str(tmp_path))


@pytest.mark.parametrize("text", ["{", "[1]", "\xff", "3", "null"])
def test_a_generation_config_that_is_no_object(folder, tmp_path, text):
    (tmp_path / "generation_config.json").write_text(text, encoding="latin-1")
    with pytest.raises(JengineError, match=r"generation_config\.json"):
        put_together(folder, generation_config=str(tmp_path))


def test_a_generation_config_that_is_a_file(folder, tmp_path):
    file = tmp_path / "generation_config.json"
    file.write_text("{}")
    with pytest.raises(JengineError, match="generation_config"):
        put_together(folder, generation_config=str(file))


def test_the_tokenizer_may_lie_elsewhere(folder, tmp_path):
    write_sentencepiece_tokenizer(tmp_path)
    own = put_together(folder).engine.tokenizer
    other = put_together(folder, tokenizer=str(tmp_path))
    assert own.encode("the") == [*b"the"]
    assert other.engine.tokenizer.encode("the")[0] == 1
    assert end_tokens(other) == (2, {7})


@pytest.mark.parametrize("has_tokenizer", [True, False])
def test_dummy_weights_need_no_files(copy, has_tokenizer):
    (copy / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"neither model\.safetensors nor"):
        put_together(copy)
    if not has_tokenizer:
        (copy / "tokenizer.json").unlink()
    options = {"load_format": "dummy", "skip_tokenizer_init": not has_tokenizer}
    texts = []
    for _ in range(2):
        engine = put_together(copy, **options).engine
        params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
        engine.add_request("a", {"prompt_token_ids": [5, 6, 7]}, params)
        outputs = []
        while not outputs or not outputs[-1].finished:
            outputs += engine.step()
        texts.append(outputs[-1].outputs[0].token_ids)
    assert texts[0] == texts[1]  # the weights are the same each time
    assert len(texts[0]) == 8
    assert len(set(texts[0])) > 1


def test_dummy_weights_are_not_the_checkpoints(folder):
    real, dummy = (
        put_together(folder, load_format=kind).engine.runner._params
        for kind in ("auto", "dummy")
    )
    assert jax.tree.structure(real) == jax.tree.structure(dummy)
    ours, random = (one["embed"]["weight"] for one in (real, dummy))
    assert ours.shape == random.shape
    assert (np.asarray(ours) != np.asarray(random)).mean() > 0.9


def test_without_a_tokenizer(folder, tmp_path):
    bare = put_together(folder, skip_tokenizer_init=True)
    assert bare.engine.tokenizer is None
    assert end_tokens(bare) == (2, {7})
    nowhere = str(tmp_path / "nowhere")
    skipped = put_together(folder, skip_tokenizer_init=True, tokenizer=nowhere)
    assert skipped.engine.tokenizer is None
    with pytest.raises(CheckpointError, match="nowhere"):
        put_together(folder, tokenizer=nowhere)


def test_warm_up_compiles_everything_at_the_start(folder):
    options = {"max_num_seqs": 1, "max_num_batched_tokens": 16, "max_logprobs": 1}
    cold = put_together(folder, warmup=None, **options).engine.runner
    assert cold.num_programs == 0
    eager = put_together(folder, warmup=True, enforce_eager=True, **options)
    assert eager.engine.runner.num_programs == 0


def test_warm_up_is_the_runners(folder, monkeypatch):
    from jengine.runner.runner import ModelRunner

    warmed = []
    monkeypatch.setattr(ModelRunner, "warm_up", lambda self: warmed.append(self))
    assembled = put_together(folder, warmup=True)
    assert warmed == [assembled.engine.runner]
    put_together(folder, warmup=False)
    assert len(warmed) == 1


def _edit(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in config.items() if v != "gone"}))


def _tensors(folder, change):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


NORM = "model.norm.weight"
SPOILT = {
    "no config": lambda f: (f / "config.json").unlink(),
    "config is no json": lambda f: (f / "config.json").write_text("{"),
    "config is a list": lambda f: (f / "config.json").write_text("[]"),
    "config is binary": lambda f: (f / "config.json").write_bytes(b"\xff\xfe"),
    "no weights": lambda f: (f / "model.safetensors").unlink(),
    "empty weights": lambda f: (f / "model.safetensors").write_bytes(b""),
    "cut weights": lambda f: (f / "model.safetensors").write_bytes(
        (f / "model.safetensors").read_bytes()[:-1000]
    ),
    "weights are text": lambda f: (f / "model.safetensors").write_text("x" * 99),
    "a missing tensor": lambda f: _tensors(f, lambda t: t.pop(NORM)),
    "a tensor too many": lambda f: _tensors(f, lambda t: t.update(extra=t[NORM])),
    "another shape": lambda f: _tensors(
        f, lambda t: t.update({NORM: np.zeros(63, np.float32)})
    ),
    "integer weights": lambda f: _tensors(
        f, lambda t: t.update({NORM: np.zeros(64, np.int32)})
    ),
    "another architecture": lambda f: _edit(f, architectures=["BertModel"]),
    "no architecture": lambda f: _edit(f, architectures="gone"),
    "a quantised one": lambda f: _edit(f, quantization_config={"quant_method": "awq"}),
    "heads that do not divide": lambda f: _edit(f, num_key_value_heads=3),
    "a size that is text": lambda f: _edit(f, hidden_size="64"),
    "a size that is null": lambda f: _edit(f, hidden_size=None),
    "a size below zero": lambda f: _edit(f, num_hidden_layers=-1),
    "no layers' worth of tensors": lambda f: _edit(f, num_hidden_layers=3),
    "another activation": lambda f: _edit(f, hidden_act="gelu"),
    "rope of another kind": lambda f: _edit(f, rope_scaling={"rope_type": "wave"}),
    "rope that is no object": lambda f: _edit(f, rope_scaling=7),
    "eos that is text": lambda f: (f / "generation_config.json").write_text(
        '{"eos_token_id": "</s>"}'
    ),
    "generation is no json": lambda f: (f / "generation_config.json").write_text("{"),
    "no tokenizer": lambda f: [p.unlink() for p in f.glob("tokenizer*")],
    "a broken tokenizer": lambda f: (f / "tokenizer.json").write_text("{}"),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_a_bad_checkpoint_is_refused_with_a_reason(copy, spoil):
    spoil(copy)
    with pytest.raises(JengineError) as caught:
        put_together(copy)
    assert len(str(caught.value)) > 20


@pytest.mark.parametrize("model", ["", "gone", "x.gguf", "no/such-model", "a b"])
def test_a_model_that_is_not_there(tmp_path, model):
    path = str(tmp_path / model) if "/" not in model and model else model
    with pytest.raises(JengineError):
        put_together(path)


@pytest.mark.parametrize("where", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("bad", [[None], 1.5, True, "</s>", {"id": 2}])
def test_end_ids_that_are_none_are_refused(copy, where, bad):
    (copy / "generation_config.json").unlink()
    if where == "config.json":
        _edit(copy, eos_token_id=bad)
    else:
        (copy / where).write_text(json.dumps({"eos_token_id": bad}))
    with pytest.raises(CheckpointError, match="eos_token_id"):
        put_together(copy)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_model_len": 513}, ConfigError),
        ({"max_num_batched_tokens": 1}, ConfigError),
        ({"tokenizer_mode": "custom"}, JengineError),
        ({"dtype": "int8"}, JengineError),
        ({"num_gpu_blocks_override": 1}, ConfigError),
        ({"kv_cache_memory_bytes": 1, "num_gpu_blocks_override": None}, ConfigError),
        ({"attention_backend": "flash"}, JengineError),
    ],
)
def test_options_that_cannot_be_met(folder, options, error):
    with pytest.raises(error, match=next(iter(options)).split("_")[0]):
        put_together(folder, **options)


def test_unsupported_models_say_which_with_and_without_weights(copy):
    _edit(copy, architectures=["BertModel"])
    with pytest.raises(UnsupportedError, match=r"copy.*BertModel.*Llama") as whole:
        put_together(copy)
    (copy / "model.safetensors").unlink()
    with pytest.raises(UnsupportedError) as bare:
        put_together(copy)
    assert str(bare.value) == str(whole.value)


def test_packages_that_gpu_images_lack_are_needed_only_when_used(folder):
    done = subprocess.run(
        [sys.executable, "-c", BARE, str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "structured outputs need llguidance, which is not installed: "
        "pip install llguidance",
        "1",
    ], done.stderr
    assert "no compilation cache: platformdirs is not installed" in done.stderr
