"""The right tokens whatever the engine does inside; the oracle is transformers."""

import itertools

import numpy as np
import pytest

from jengine import SamplingParams
from jengine.testing import scripted, write_markov_checkpoint

slow = pytest.mark.slow


def _params(max_tokens, **options):
    return SamplingParams(
        temperature=0, max_tokens=max_tokens, ignore_eos=True, **options
    )


def _ids(outputs):
    return [list(output.outputs[0].token_ids) for output in outputs]


def _prompts(entries):
    return [entry.prompt for entry in entries]


def _check(outputs, entries, count):
    """Every output has `count` ids, and those that are sure are transformers'."""
    for ids, entry in zip(_ids(outputs), entries, strict=True):
        assert len(ids) == count
        expected = entry.expected(count)
        assert ids[: len(expected)] == expected


def test_cor_01_prefix_hit_that_covers_the_whole_prompt(
    f2_dir, f2_greedy, make_llm, check_idle
):
    llm = make_llm(f2_dir)
    for length in (1, 15, 16, 17, 31, 32, 33, 48):
        entry = f2_greedy[length - 1]
        cached = []
        for _ in range(3):
            outputs = llm.generate(entry.prompt, _params(8), use_tqdm=False)
            _check(outputs, [entry], 8)
            cached.append(outputs[0].num_cached_tokens)
        assert cached == [0] + [16 * ((length - 1) // 16)] * 2
    longer = f2_greedy[47].prompt[:32]
    first = llm.generate(longer, _params(8), use_tqdm=False)
    assert first[0].num_cached_tokens == 16
    llm.reset_prefix_cache()
    assert _ids(llm.generate(longer, _params(8), use_tqdm=False)) == _ids(first)
    check_idle(llm)


@pytest.mark.parametrize("block_size", [pytest.param(8, marks=slow), 16])
def test_cor_02_prefix_cache_never_changes_the_answer(
    f2_dir, f2_greedy, make_llm, check_idle, block_size
):
    entries = f2_greedy[80:]
    # Small enough that blocks of earlier prompts are handed out again.
    tight = 2 + 160 // block_size
    on = make_llm(f2_dir, block_size=block_size, num_gpu_blocks_override=tight)
    off = make_llm(
        f2_dir,
        block_size=block_size,
        num_gpu_blocks_override=tight,
        enable_prefix_caching=False,
    )
    for order in (entries, entries[::-1]):
        for entry in order:
            outputs = on.generate(entry.prompt, _params(12), use_tqdm=False)
            _check(outputs, [entry], 12)
    for llm in (on, off):
        for _ in range(2):
            outputs = llm.generate(_prompts(entries), _params(12), use_tqdm=False)
            _check(outputs, entries, 12)
        check_idle(llm)
    assert on.stats.prefix_cache_hits > 0
    assert off.stats.prefix_cache_hits == 0


def test_cor_02_a_block_is_no_hit_behind_another_first_block(
    f2_dir, f2_greedy, make_llm
):
    *_, entry, twin = f2_greedy
    assert entry.prompt[16:] == twin.prompt[16:]
    assert entry.prompt != twin.prompt
    llm = make_llm(f2_dir)
    for one in (entry, twin):
        outputs = llm.generate(one.prompt, _params(8), use_tqdm=False)
        _check(outputs, [one], 8)
        assert outputs[0].num_cached_tokens == 0


@pytest.mark.parametrize(
    ("num_blocks", "caching", "budget", "ahead"),
    [
        (15, True, 64, True),
        pytest.param(15, False, 8, True, marks=slow),
        pytest.param(15, True, 8, False, marks=slow),
        pytest.param(20, True, 64, True, marks=slow),
        (20, False, 64, False),
        pytest.param(30, True, 8, True, marks=slow),
    ],
)
def test_cor_03_preemption_loses_and_repeats_nothing(
    f2_dir, f2_greedy, make_llm, check_idle, num_blocks, caching, budget, ahead
):
    entries = [f2_greedy[n - 1] for n in (5, 10, 15, 20, 25, 30, 35, 40)]
    llm = make_llm(
        f2_dir,
        block_size=8,
        num_gpu_blocks_override=num_blocks,
        enable_prefix_caching=caching,
        max_num_batched_tokens=budget,
        async_scheduling=ahead,
    )
    outputs = llm.generate(_prompts(entries), _params(64, logprobs=1), use_tqdm=False)
    _check(outputs, entries, 64)
    for output in outputs:
        assert len(output.outputs[0].logprobs) == 64
    assert llm.stats.num_preemptions > 0
    check_idle(llm)


def test_cor_03_preemption_does_not_change_seeded_draws(
    f2_dir, f2_greedy, make_llm, check_idle
):
    prompts = [f2_greedy[n - 1].prompt for n in (5, 10, 15, 20, 25, 30, 35, 40)]
    params = [
        SamplingParams(temperature=1, seed=100 + i, max_tokens=48, ignore_eos=True)
        for i in range(8)
    ]
    ample = make_llm(f2_dir, block_size=8)
    tight = make_llm(f2_dir, block_size=8, num_gpu_blocks_override=15)
    want = _ids(ample.generate(prompts, params, use_tqdm=False))
    assert _ids(tight.generate(prompts, params, use_tqdm=False)) == want
    assert tight.stats.num_preemptions > 0 == ample.stats.num_preemptions
    assert len({tuple(ids) for ids in want}) == 8
    check_idle(tight)


def test_cor_03_deltas_add_up_through_preemption(f2_dir, f2_greedy, make_llm):
    from jengine import RequestOutputKind

    llm = make_llm(f2_dir, block_size=8, num_gpu_blocks_override=15)
    entries = [f2_greedy[n - 1] for n in (20, 25, 30, 35)]
    params = _params(40, output_kind=RequestOutputKind.DELTA, logprobs=0)
    for i, entry in enumerate(entries):
        llm.llm_engine.add_request(str(i), entry.prompt, params)
    got: dict[str, list[int]] = {str(i): [] for i in range(4)}
    while llm.llm_engine.has_unfinished_requests():
        for output in llm.llm_engine.step():
            (completion,) = output.outputs
            assert len(completion.token_ids) == len(completion.logprobs) == 1
            got[output.request_id] += completion.token_ids
    for i, entry in enumerate(entries):
        assert len(got[str(i)]) == 40
        expected = entry.expected(40)
        assert got[str(i)][: len(expected)] == expected
    assert llm.stats.num_preemptions > 0


@pytest.mark.parametrize(
    "budget", [*(pytest.param(b, marks=slow) for b in (2, 3, 16, 17, 31, 256)), 7, 64]
)
def test_cor_04_chunked_prefill_with_odd_sizes(
    f2_dir, f2_greedy, make_llm, check_idle, budget
):
    llm = make_llm(
        f2_dir,
        max_num_batched_tokens=budget,
        max_num_seqs=min(budget, 4),
        enable_prefix_caching=False,
    )
    entries = f2_greedy[:70]
    outputs = llm.generate(_prompts(entries), _params(6, logprobs=1), use_tqdm=False)
    _check(outputs, entries, 6)
    for output, entry in zip(outputs, entries, strict=True):
        (completion,) = output.outputs
        first = completion.logprobs[0][completion.token_ids[0]]
        assert first.logprob == pytest.approx(entry.first_logprob, abs=1e-4)
    # Every prompt token ran once: nothing was sampled before its last chunk.
    assert llm.stats.num_scheduled_tokens == sum(range(1, 71)) + 70 * 5
    check_idle(llm)


def test_cor_04_a_budget_below_the_rows_is_refused(f2_dir, make_llm):
    with pytest.raises(ValueError, match=r"max_num_batched_tokens.*4.*max_num_seqs"):
        make_llm(f2_dir, max_num_batched_tokens=4, max_num_seqs=8)


@pytest.fixture(scope="module")
def nan_markov(tmp_path_factory):
    """A chain 1, 10, 11, ..., 43, 45, ...; the embedding of 44 is NaN."""
    return write_markov_checkpoint(
        tmp_path_factory.mktemp("nan"),
        scripted([1, *range(10, 44), *range(45, 80)], 320),
        vocab_size=320,
        nan_tokens=(44,),
    )


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("caching", [True, False])
def test_cor_05_nan_of_one_request_never_reaches_another(
    nan_markov, make_llm, check_idle, ahead, caching
):
    llm = make_llm(
        nan_markov,
        num_gpu_blocks_override=7,
        max_model_len=48,
        async_scheduling=ahead,
        enable_prefix_caching=caching,
    )
    bad = [1, 10, 44]
    good = [[1, *range(10, 10 + n)] for n in range(2, 17, 3)]
    together = [bad, good[0], bad, good[1]]
    for prompts in ([bad], *[[p] for p in good], together, [bad, *good]):
        outputs = llm.generate(prompts, _params(8, logprobs=1), use_tqdm=False)
        for prompt, output in zip(prompts, outputs, strict=True):
            (completion,) = output.outputs
            if prompt is bad:
                assert completion.finish_reason == "error"
                assert completion.token_ids == []
                continue
            start = prompt[-1] + 1
            assert completion.token_ids == list(range(start, start + 8))
            values = [
                entry[t].logprob
                for entry, t in zip(
                    completion.logprobs, completion.token_ids, strict=True
                )
            ]
            assert np.isfinite(values).all()
    check_idle(llm)


def test_cor_05_a_shared_prefix_before_the_nan_stays_clean(nan_markov, make_llm):
    llm = make_llm(nan_markov)
    shared = [1, *range(10, 10 + 20)]
    (spoilt,) = llm.generate([*shared, 44, 5], _params(4), use_tqdm=False)
    assert spoilt.outputs[0].finish_reason == "error"
    (clean,) = llm.generate(shared, _params(4), use_tqdm=False)
    assert clean.num_cached_tokens == 16
    assert clean.outputs[0].token_ids == [30, 31, 32, 33]


def test_cor_05_a_pool_full_of_nan_changes_nothing(f2_dir, f2_greedy, make_llm):
    import jax
    import jax.numpy as jnp

    llm = make_llm(f2_dir)
    runner = llm.llm_engine.runner
    runner._kv = jax.tree.map(lambda a: jnp.full_like(a, jnp.nan), runner._kv)
    entries = [f2_greedy[n - 1] for n in (1, 7, 16, 33, 60)]
    outputs = llm.generate(_prompts(entries), _params(24), use_tqdm=False)
    _check(outputs, entries, 24)


@pytest.mark.parametrize("ahead", [True, False])
def test_alone_and_together_give_the_same(f2_dir, f2_greedy, make_llm, ahead):
    llm = make_llm(f2_dir, async_scheduling=ahead, enable_prefix_caching=False)
    entries = f2_greedy[10:60:7]
    together = llm.generate(_prompts(entries), _params(30), use_tqdm=False)
    _check(together, entries, 30)
    alone = [llm.generate(e.prompt, _params(30), use_tqdm=False) for e in entries]
    assert _ids(itertools.chain.from_iterable(alone)) == _ids(together)
