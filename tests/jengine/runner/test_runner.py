"""The runner: no compile after warm-up, no copy of the cache, one read."""

import re

import jax
import numpy as np
import pytest

from jengine import SamplingParams, StructuredOutputsParams
from jengine.errors import OutOfMemoryError
from jengine.runner.program_keys import (
    DecodeKey,
    ForwardKey,
    PromptKey,
    SampleKey,
    SeatKey,
)
from jengine.runner.sample import SampleMode
from jengine.testing import write_byte_tokenizer, write_random_checkpoint


@pytest.fixture
def count_compiles():
    """Counts the programs that XLA compiles, by jax's own events."""
    events: list[str] = []

    def listen(event, _duration, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield lambda: len(events)
    jax.monitoring.unregister_event_duration_listener(listen)


# Few buckets: rows 1, 2, 4 and tokens 16, 24.
SMALL = {
    "max_num_seqs": 4,
    "max_num_batched_tokens": 24,
    "num_gpu_blocks_override": 12,
    "max_model_len": 96,
}


@pytest.fixture
def small(f2_dir, make_llm):
    """An engine with few buckets."""
    return make_llm(f2_dir, **SMALL)


@pytest.fixture(scope="module")
def byte_f2_dir(tmp_path_factory):
    """The same model with a tokenizer."""
    folder = tmp_path_factory.mktemp("byte_f2")
    write_random_checkpoint(folder)
    write_byte_tokenizer(folder)
    return folder


def _prompts(rng, count):
    """Prompts of which some start alike."""
    lengths = rng.integers(1, 60, count)
    prompts = [rng.integers(3, 320, size=n).tolist() for n in lengths]
    stem = list(range(3, 36))
    return [stem + ids[:20] if rng.random() < 0.3 else ids for ids in prompts]


def _random_params(rng):
    """Parameters of which each field is drawn by itself."""
    ids = rng.choice(np.arange(3, 320), 40, replace=False).tolist()
    drawn = {
        "top_k": int(rng.integers(1, 40)),
        "top_p": float(rng.uniform(0.1, 1)),
        "min_p": float(rng.uniform(0, 0.3)),
        "presence_penalty": float(rng.uniform(-2, 2)),
        "frequency_penalty": float(rng.uniform(-2, 2)),
        "repetition_penalty": float(rng.uniform(0.5, 2)),
        "logit_bias": dict.fromkeys(ids[:3], 2.0),
        "allowed_token_ids": ids,
        "bad_words": ["a", "no"],
        "stop": ["e", "th"],
        "stop_token_ids": ids[:5],
        "min_tokens": 2,
        "ignore_eos": True,
        "logprobs": int(rng.integers(0, 5)),
        "prompt_logprobs": int(rng.integers(0, 5)),
        "logprob_token_ids": ids[:4],
        "n": int(rng.integers(1, 4)),
        "structured_outputs": StructuredOutputsParams(regex="[a-f]{1,9}"),
    }
    chosen = {name: value for name, value in drawn.items() if rng.random() < 0.2}
    return SamplingParams(
        temperature=float(rng.choice([0.0, 0.7, 1.3])),
        max_tokens=int(rng.integers(3, 12)),
        seed=int(rng.integers(2**31)),
        **chosen,
    )


def _workload(seed):
    """Prompts and parameters that touch every sampling mode."""
    rng = np.random.default_rng(seed)
    prompts = [rng.integers(3, 320, size=n).tolist() for n in rng.integers(1, 60, 14)]
    choices = [
        {"temperature": 0},
        {"temperature": 1},
        {"temperature": 1, "top_k": 5},
        {"temperature": 0.7, "top_p": 0.9, "min_p": 0.01},
        {"temperature": 0, "logprobs": 3},
        {"temperature": 1, "logprobs": 0},
        {"temperature": 1, "min_tokens": 4, "stop_token_ids": [7]},
    ]
    params = [
        SamplingParams(
            max_tokens=int(rng.integers(1, 20)) + 5, seed=i, **choices[i % 7]
        )
        for i in range(14)
    ]
    return prompts, params


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [True, False])
def test_no_workload_compiles_anything_after_warm_up(
    byte_f2_dir, make_llm, count_compiles, ahead
):
    options = SMALL | {"max_num_seqs": 2, "num_gpu_blocks_override": 8}
    options |= {"skip_tokenizer_init": False, "async_scheduling": ahead}
    options |= {"compilation_cache_dir": False}
    llm = make_llm(byte_f2_dir, **options)
    runner = llm.llm_engine.runner
    start = count_compiles()
    done = []
    runner.warm_up(done.append)
    assert set(done) == set(runner.program_keys())
    before = count_compiles()
    assert runner.num_programs == len(runner.program_keys()) == before - start
    rng = np.random.default_rng(ahead)
    finished = 0
    while finished < 2000:
        prompts = _prompts(rng, int(rng.integers(1, 40)))
        params = [_random_params(rng) for _ in prompts]
        finished += len(llm.generate(prompts, params, use_tqdm=False))
    assert llm.stats.num_preemptions > 0
    assert llm.stats.prefix_cache_hits > 0
    assert count_compiles() == before
    assert runner.num_programs == len(runner.program_keys())


def test_without_warm_up_a_program_is_compiled_once(small, count_compiles):
    start = count_compiles()
    small.generate(*_workload(0), use_tqdm=False)
    after = count_compiles()
    assert 0 < small.llm_engine.runner.num_programs <= after - start
    assert small.reset_prefix_cache()  # or hits would lead to other buckets
    small.generate(*_workload(0), use_tqdm=False)
    assert count_compiles() == after


def test_a_step_that_does_not_fit_names_what_to_lower(f2_dir, make_llm, monkeypatch):
    llm = make_llm(f2_dir)

    def exhausted(*_):
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes.")

    params = SamplingParams(temperature=1, top_k=5, seed=1, max_tokens=3)
    for method in ("_run", "_forward", "_draw"):
        with monkeypatch.context() as patch:
            patch.setattr(llm.llm_engine.runner, method, exhausted)
            with pytest.raises(OutOfMemoryError, match=r"a step .*max_num_batched"):
                llm.generate([[5, 6, 7]], params, use_tqdm=False)
        (output,) = llm.generate([[5, 6, 7]], params, use_tqdm=False)
        assert len(output.outputs[0].token_ids) == 3


def test_the_cache_stays_where_it_is(small):
    runner = small.llm_engine.runner

    def pointers():
        return [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(runner._kv)]

    small.generate(*_workload(0), use_tqdm=False)
    before = pointers()
    small.generate(*_workload(1), use_tqdm=False)
    assert pointers() == before


def _kv_copies(compiled, shape):
    """Copies of an array of this shape in the compiled program."""
    dims = ",".join(map(str, shape))
    pattern = rf"= \w+\[{dims}\]\S* copy(?:-start)?\("
    return re.findall(pattern, compiled.as_text())


@pytest.mark.parametrize("single", [True, False])
def test_compiled_programs_hold_no_copy_of_the_cache(small, single):
    runner = small.llm_engine.runner
    rows, tokens = (4, 4) if single else (4, 20)
    bucket = runner.buckets.for_step(num_rows=rows, num_tokens=tokens, longest_table=3)
    key = DecodeKey(bucket, SampleMode()) if single else ForwardKey(bucket)
    compiled = runner._programs.get(key)
    leaves = jax.tree.leaves(runner._kv)
    assert _kv_copies(compiled, leaves[0].shape) == []
    assert "copy" in compiled.as_text() or single  # the pattern has something to miss
    analysis = compiled.memory_analysis()
    kv_bytes = sum(leaf.nbytes for leaf in leaves)
    assert analysis.alias_size_in_bytes >= kv_bytes
    # The attention gathers a chunk of it at a time, never the whole.
    assert analysis.temp_size_in_bytes < 20 * kv_bytes


def test_the_host_reads_device_values_in_collect_only(small, monkeypatch):
    small.generate(*_workload(0), use_tqdm=False)
    runner = small.llm_engine.runner
    reads: list[bool] = []
    inside = []
    original = type(small.llm_engine.runner._last_token).__array__

    def spy(self, *args, **kwargs):
        reads.append(bool(inside))
        return original(self, *args, **kwargs)

    collect = runner.collect

    def spied_collect(handle):
        inside.append(True)
        try:
            return collect(handle)
        finally:
            inside.pop()

    monkeypatch.setattr(type(runner._last_token), "__array__", spy)
    for name in ("__int__", "__float__", "__bool__", "__index__", "tolist", "item"):
        monkeypatch.setattr(type(runner._last_token), name, _forbidden)
    monkeypatch.setattr(runner, "collect", spied_collect)
    outputs = small.generate(*_workload(0), use_tqdm=False)
    assert all(output.finished for output in outputs)
    assert reads.count(False) == 0


def _forbidden(*_):
    raise AssertionError("a device value was read outside collect")


def test_reset_replaces_a_cache_that_was_lost_in_a_donated_call(small, f2_greedy):
    runner, entry = small.llm_engine.runner, f2_greedy[20]
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    small.generate(entry.prompt, params, use_tqdm=False)
    for leaf in jax.tree.leaves(runner._kv):
        leaf.delete()
    runner.reset()
    small.reset_prefix_cache()
    (output,) = small.generate(entry.prompt, params, use_tqdm=False)
    assert output.outputs[0].token_ids == entry.expected(8)


def test_program_keys_cover_every_bucket_and_mode(small):
    keys = small.llm_engine.runner.program_keys()
    assert len(keys) == len(set(keys))
    forward = {key.bucket for key in keys if isinstance(key, ForwardKey)}
    assert forward == set(small.llm_engine.runner.buckets.steps())
    sampling = {key for key in keys if isinstance(key, SampleKey)}
    assert {key.rows for key in sampling} == {1, 2, 4}
    assert len({key.mode for key in sampling}) == 15
    prompts = {key.tokens for key in keys if isinstance(key, PromptKey)}
    assert prompts == {bucket.tokens for bucket in forward}
    assert SeatKey() in keys
