import sys

import pytest

from jengine.bench.compare.backend_process import find_engine
from jengine.bench.compare.comparison import Patience
from jengine.bench.compare.launch import CompareRequest, make_launch, run_comparison
from jengine.errors import CheckpointError

PATIENCE = Patience(rounds=2, max_foreign_cpus=1e3)


def test_all_engines_run_and_all_failures_are_told(engines, f2_dir, tmp_path):
    said = []
    request = CompareRequest(
        model=str(f2_dir),
        backends=("doubling", "missing", "unknown", "doubling@again"),
        batches=(1, 2),
        output_tokens=3,
        patience=PATIENCE,
        cache=tmp_path / "cache",
        logs=tmp_path / "logs",
    )
    results = run_comparison(request, {}, said.append)
    assert [(r.backend, r.batch, len(r.samples)) for r in results] == [
        (name, batch, rounds)
        for batch in (1, 2)
        for name, rounds in zip(request.backends, (2, 0, 0, 2), strict=True)
    ]
    good, missing, unknown, again = results[:4]
    assert good.version == "2.0"
    assert good.versions == (("helper", "1"),)
    assert good.prompt_tokens == 80
    assert good.output_tokens == 3
    assert good.error is None
    assert good.init_s is not None
    assert good.first_token_s is not None
    assert 0 < good.init_s <= good.first_token_s
    assert good.peak_rss_bytes
    assert missing.error is not None
    assert unknown.error is not None
    assert "a_module_that_nobody_has" in missing.error
    assert "'unknown' is unknown; known: doubling, dying" in unknown.error
    assert again.same_tokens == 1.0
    assert "to stdout" in (tmp_path / "logs" / "doubling.log").read_text()
    assert any("doubling 2.0: loaded after" in line for line in said)


def test_a_model_that_is_not_there_is_refused(tmp_path):
    request = CompareRequest(model=str(tmp_path / "none"), cache=tmp_path)
    with pytest.raises(CheckpointError):
        run_comparison(request, {})


def test_own_python_sees_our_packages_and_no_other_does():
    request = CompareRequest(
        model="m", threads=1, pythons={"vllm": "/opt/python"},
        variables={"vllm@b": {"VLLM_CPU_KVCACHE_SPACE": "9"}},
    )  # fmt: skip
    ours = make_launch(request, "jengine", {"A": "1"})
    assert ours.python == sys.executable
    assert ours.environment["A"] == ours.environment["OMP_NUM_THREADS"] == "1"
    assert sys.path[-1] in ours.environment["PYTHONPATH"]
    theirs = make_launch(request, "vllm", {"A": "1"})
    assert theirs.python == "/opt/python"
    assert theirs.engine_file == find_engine("vllm")
    assert "PYTHONPATH" not in theirs.environment
    assert len(theirs.environment["VLLM_CPU_OMP_THREADS_BIND"].split(",")) == 1
    other = make_launch(request, "vllm@b", {})
    assert other.python == "/opt/python"
    assert other.environment["VLLM_CPU_KVCACHE_SPACE"] == "9"


@pytest.mark.slow
def test_jengine_and_transformers_draw_the_same(f2_dir, small_options, tmp_path):
    pytest.importorskip("torch")
    cache = {"compilation_cache_dir": small_options["compilation_cache_dir"]}
    request = CompareRequest(
        model=str(f2_dir),
        backends=("jengine", "transformers"),
        batches=(1, 3),
        min_prompt_tokens=4,
        max_prompt_tokens=24,
        output_tokens=6,
        engine_options={"jengine": cache | {"num_gpu_blocks_override": 40}},
        patience=Patience(rounds=1, max_foreign_cpus=1e3),
        cache=tmp_path,
    )
    results = run_comparison(request, {"JAX_PLATFORMS": "cpu"})
    assert [one.error for one in results] == [None] * 4
    assert [one.same_tokens for one in results] == [None, 1.0, None, 1.0]
