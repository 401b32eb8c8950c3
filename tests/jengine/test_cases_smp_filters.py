"""Temperatures, seeds, filters and default values, on a model whose odds are known."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from jengine import SamplingParams
from jengine.errors import CheckpointError
from jengine.testing import uniform, write_markov_checkpoint

VOCAB = 320
P4 = {50: 0.4, 60: 0.3, 70: 0.2, 80: 0.1}
PROMPT = [30]


@pytest.fixture(scope="module")
def make_markov(tmp_path_factory, make_llm):
    """Makes an engine that gives each token of `odds` its probability, always."""

    def make(odds, *, engine=None, **checkpoint):
        row = np.full(VOCAB, -1e4, np.float32)
        row[list(odds)] = np.log(list(odds.values()))
        folder = tmp_path_factory.mktemp("markov")
        table = dict.fromkeys([*odds, *PROMPT], row)
        write_markov_checkpoint(folder, table, **({"eos_token_id": None} | checkpoint))
        return make_llm(folder, **(engine or {}))

    return make


@pytest.fixture(scope="module")
def four(make_markov):
    """Draws from four tokens."""
    return make_markov(P4)


def _ids(llm, params, prompts=None):
    """The ids that each set of parameters gives."""
    prompts = prompts or [PROMPT] * len(params)
    outputs = llm.generate(prompts, params, use_tqdm=False)
    return [output.outputs[0].token_ids for output in outputs]


def _check_odds(drawn, odds):
    """Check that draws come from a distribution, all of it and nothing else."""
    found = [list(drawn).count(token) for token in odds]
    assert sum(found) == len(drawn), set(drawn) - set(odds)
    wanted = np.array(list(odds.values()))
    if len(odds) > 1:
        expected = wanted / wanted.sum() * len(drawn)
        assert stats.chisquare(found, expected).pvalue > 1e-4


@pytest.fixture(scope="module")
def gaps(make_markov):
    """The best tokens are half a logit apart."""
    return make_markov({token: np.exp(-0.5 * i) for i, token in enumerate(P4)})


@pytest.mark.parametrize(
    "more", [{}, {"top_p": 0.9}, {"top_k": 0, "min_p": 0.001}], ids=str
)
def test_smp_01_tiny_temperatures_take_the_best(gaps, check_idle, more):
    params = [
        SamplingParams(
            temperature=temperature,
            seed=1,
            max_tokens=6,
            logprobs=2,
            ignore_eos=True,
            **more,
        )
        for temperature in (0, 1e-40, 1e-12, 1e-6, 1e-3, 0.01, 1)
    ]
    outputs = gaps.generate([PROMPT] * len(params), params, use_tqdm=False)
    *cold, warm = [output.outputs[0] for output in outputs]
    for done in cold:
        assert done.token_ids == [50] * 6
        assert np.isfinite(done.cumulative_logprob)
        for entry in done.logprobs:
            assert all(np.isfinite(one.logprob) for one in entry.values())
    assert warm.token_ids != [50] * 6
    check_idle(gaps)


@pytest.mark.parametrize("bad", [-0.1, -1e-9, float("inf"), float("nan"), 2.1])
def test_smp_01_temperatures_that_are_none(bad):
    with pytest.raises(ValueError, match="temperature"):
        SamplingParams(temperature=bad)


@pytest.fixture(scope="module")
def even(make_markov):
    """Draws from 200 tokens with equal chance."""
    return make_markov(dict.fromkeys(range(100, 300), 1 / 200))


def _seeded(seed=7, **options):
    return SamplingParams(seed=seed, max_tokens=20, ignore_eos=True, **options)


def _neighbours():
    greedy = SamplingParams(temperature=0, max_tokens=9, ignore_eos=True)
    free = SamplingParams(max_tokens=15, top_k=5, ignore_eos=True)
    return [greedy, free, *(_seeded(seed, top_p=0.5) for seed in range(20, 30))]


def test_smp_02_company_does_not_change_a_seeded_draw(even, check_idle):
    (alone,) = _ids(even, [_seeded()])
    others = _neighbours()
    for place in (0, 3, len(others)):
        together = [*others[:place], _seeded(), *others[place:]]
        assert _ids(even, together)[place] == alone
    assert _ids(even, [_seeded(), _seeded(), _seeded(8)])[:2] == [alone, alone]
    assert _ids(even, [_seeded(8)]) != [alone]
    # vLLM's filters that are off, and options that change nothing, change no draw.
    for same in ({"top_p": 1.0}, {"top_k": VOCAB}, {"top_k": -1}, {"min_p": 1e-9}):
        assert _ids(even, [_seeded(**same)]) == [alone]
    check_idle(even)


def test_smp_02_unseeded_draws_differ_between_rows_and_calls(even):
    free = SamplingParams(max_tokens=20, ignore_eos=True)
    drawn = [*_ids(even, [free, _seeded(), free]), *_ids(even, [free, free])]
    assert len({tuple(ids) for ids in drawn}) == 5


@pytest.mark.parametrize(
    "options",
    [
        {"max_num_batched_tokens": 8},
        pytest.param(
            {"num_gpu_blocks_override": 9, "block_size": 8}, marks=pytest.mark.slow
        ),
        {"async_scheduling": False, "seed": 99},
    ],
    ids=["chunked", "preempted", "restarted"],
)
def test_smp_02_engines_draw_alike(even, make_markov, check_idle, options):
    prompts = [PROMPT, [100, 101] * 10, [150] * 17]
    expected = _ids(even, [_seeded(seed) for seed in (1, 2, 3)], prompts)
    other = make_markov(dict.fromkeys(range(100, 300), 1 / 200), engine=options)
    params = [_seeded(seed) for seed in (1, 2, 3)] + _neighbours()
    company = prompts + [[7] * (1 + i) for i in range(len(params) - 3)]
    assert _ids(other, params, company)[:3] == expected
    if "num_gpu_blocks_override" in options:
        assert other.stats.num_preemptions > 0
    check_idle(other)


def test_smp_02_seeds_give_uniform_draws(even):
    drawn = _ids(even, [_seeded(seed) for seed in range(150)])
    assert len({tuple(ids) for ids in drawn}) == 150
    _check_odds(np.concatenate(drawn), dict.fromkeys(range(100, 300), 1))
    # Neighbouring seeds and positions have nothing to do with each other.
    grid = np.array(drawn)
    assert abs(np.corrcoef(grid[:-1].ravel(), grid[1:].ravel())[0, 1]) < 0.08
    assert abs(np.corrcoef(grid[:, :-1].ravel(), grid[:, 1:].ravel())[0, 1]) < 0.08


@pytest.mark.parametrize("seed", [0, -2, 2**63, 2**64 - 1, np.int64(5)])
def test_smp_02_every_seed_of_64_bits_repeats(even, seed):
    first, second = _ids(even, [_seeded(seed), _seeded(seed)])
    assert first == second
    assert len(set(first)) > 10


# What each set of options leaves of the four tokens, and their odds if not their own.
FILTERS = [
    *[({"top_k": k}, n) for k, n in [(-1, 4), (0, 4), (1, 1), (2, 2), (4, 4)]],
    *[({"top_k": k}, 4) for k in (VOCAB, 1000)],
    *[({"top_p": p}, n) for p, n in [(0.39, 1), (0.41, 2), (0.69, 2), (0.71, 3)]],
    *[({"top_p": p}, n) for p, n in [(1, 4), (1e-9, 1)]],
    *[({"min_p": p}, n) for p, n in [(0, 4), (0.24, 4), (0.26, 3), (0.51, 2)]],
    *[({"min_p": p}, n) for p, n in [(0.76, 1), (1, 1)]],
    ({"top_k": 2, "top_p": 0.5}, 1),  # of 0.571 and 0.429
    ({"top_k": 2, "top_p": 0.6}, 2),
    ({"top_k": 3, "min_p": 0.7}, 2),
    ({"min_p": 0.51, "top_p": 0.5}, 1),  # min-p comes before top-p
    # The filters see tempered odds: 0.533, 0.3, 0.133, 0.033.
    ({"temperature": 0.5, "min_p": 0.26}, 2),
    ({"temperature": 0.5, "top_p": 0.52}, 1),
    # And here 0.325, 0.282, 0.23, 0.163.
    ({"temperature": 2, "top_p": 0.41}, 2),
    ({"temperature": 2, "min_p": 0.49}, 4),
    ({"temperature": 2, "top_p": 0.62}, 3),
]


def test_smp_04_mixed_filters_in_one_batch(four, check_idle):
    # Two requests of 120 draws for each, so that all kinds run side by side.
    asked = [(i, seed) for seed in range(2) for i in range(len(FILTERS))]
    params = [
        SamplingParams(seed=10 * i + seed, max_tokens=120, **FILTERS[i][0])
        for i, seed in asked
    ]
    drawn = {i: [] for i in range(len(FILTERS))}
    for (i, _), ids in zip(asked, _ids(four, params), strict=True):
        drawn[i] += ids
    for i, (options, count) in enumerate(FILTERS):
        odds = dict(list(P4.items())[:count])
        cold = 1 / options.get("temperature", 1)
        _check_odds(drawn[i], {token: p**cold for token, p in odds.items()})
    check_idle(four)


def test_smp_04_defaults_do_not_mean_greedy(four):
    drawn = _ids(four, [SamplingParams()] * 50)
    assert {len(ids) for ids in drawn} == {16}
    _check_odds([ids[0] for ids in drawn], P4)
    _check_odds(np.concatenate(drawn), P4)


def test_smp_04_filters_act_on_what_biases_and_lists_leave(four):
    pairs = [
        ({"allowed_token_ids": [60, 70, 80], "top_k": 1}, {60}),
        ({"allowed_token_ids": [70, 80], "top_p": 0.5}, {70}),
        ({"allowed_token_ids": [70, 80], "min_p": 0.49}, {70, 80}),
        ({"logit_bias": {80: 5.0}, "top_k": 1}, {80}),
        ({"logit_bias": {50: -100}, "top_p": 0.45}, {60}),
        ({"top_k": 2}, {50, 60}),
    ]
    params = [SamplingParams(seed=1, max_tokens=60, **options) for options, _ in pairs]
    found = [set(ids) for ids in _ids(four, params)]
    assert found == [support for _, support in pairs]


def test_smp_04_equals_at_the_limit(make_markov):
    llm = make_markov(dict.fromkeys(P4, 0.25))
    options = [{"top_k": 2}, {"top_p": 0.6}, {"min_p": 1}, {"top_p": 0.2}]
    params = [SamplingParams(seed=3, max_tokens=80, **one) for one in options]
    found = [set(ids) for ids in _ids(llm, params)]
    # All that equal the k-th best stay; top-p takes the first of equals.
    assert found == [set(P4), {50, 60, 70}, set(P4), {50}]


FILE = {
    "temperature": 0.6,
    "top_k": 2,
    "repetition_penalty": 1.2,
    "max_new_tokens": 3,
    "eos_token_id": [2, 7],
}
LISTED = SamplingParams(temperature=0.6, top_k=2, repetition_penalty=1.2, max_tokens=3)


@pytest.fixture(scope="module")
def make_listed(make_markov):
    """Makes an engine whose checkpoint proposes sampling values; 7 is an end id."""
    odds = P4 | {7: 0.02}

    def make(content=FILE, **engine):
        return make_markov(
            odds, engine=engine, eos_token_id=2, generation_config=content
        )

    return make


def test_smp_07_explicit_values_are_used_as_they_are(make_listed, check_idle):
    llm = make_listed()
    assert llm.get_default_sampling_params() == LISTED
    explicit = SamplingParams(temperature=1.0, max_tokens=100, ignore_eos=True)
    drawn = _ids(llm, [dataclasses.replace(explicit, seed=seed) for seed in range(4)])
    _check_odds(np.concatenate(drawn), P4 | {7: 0.02})
    check_idle(llm)


def test_smp_07_without_values_the_file_decides(make_listed):
    llm = make_listed()
    outputs = llm.generate([PROMPT] * 100, use_tqdm=False)
    first = [output.outputs[0].token_ids[0] for output in outputs]
    _check_odds(first, {50: 0.4 ** (1 / 0.6), 60: 0.3 ** (1 / 0.6)})
    # Who starts from the defaults keeps what is not replaced.
    changed = dataclasses.replace(llm.get_default_sampling_params(), top_k=1, seed=1)
    assert changed.temperature == 0.6
    assert _ids(llm, [changed])[0][0] == 50


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, LISTED),
        ({"generation_config": "vllm"}, SamplingParams()),
        (
            {"override_generation_config": {"top_k": 5}},
            dataclasses.replace(LISTED, top_k=5),
        ),
        (
            {
                "generation_config": "vllm",
                "override_generation_config": {"temperature": 0.3},
            },
            SamplingParams(temperature=0.3),
        ),
    ],
    ids=["file", "built in", "override", "override alone"],
)
def test_smp_07_the_end_ids_always_count(make_listed, options, expected):
    llm = make_listed(**options)
    assert llm.get_default_sampling_params() == expected
    wanted = SamplingParams(logit_bias={7: 100}, max_tokens=5)
    (output,) = llm.generate(PROMPT, wanted, use_tqdm=False)
    done = output.outputs[0]
    assert (done.token_ids, done.finish_reason, done.stop_reason) == ([7], "stop", 7)


@pytest.mark.parametrize(
    "content",
    [None, {}, {"temperature": None, "top_k": None}, {"do_sample": True, "pad": 0}],
    ids=str,
)
def test_smp_07_a_file_that_proposes_nothing(make_listed, content):
    llm = make_listed(content)
    assert llm.get_default_sampling_params() == SamplingParams()
    one = dataclasses.replace(llm.get_default_sampling_params(), max_tokens=1)
    drawn = _ids(llm, [one] * 20)
    assert {ids[0] for ids in drawn} >= {50, 60, 70}


@pytest.mark.parametrize("content", ["{", "[1]", ""])
def test_smp_07_a_broken_file_is_an_error_with_its_name(tmp_path, make_llm, content):
    write_markov_checkpoint(tmp_path, uniform(range(9), VOCAB))
    (tmp_path / "generation_config.json").write_text(content)
    with pytest.raises(CheckpointError, match="generation_config"):
        make_llm(tmp_path)


def test_smp_07_values_of_the_file_that_are_none(make_listed):
    llm = make_listed({"temperature": -1})
    with pytest.raises(ValueError, match="temperature"):
        llm.get_default_sampling_params()
    with pytest.raises(ValueError, match="temperature"):
        llm.generate(PROMPT, use_tqdm=False)
    assert len(_ids(llm, [SamplingParams(max_tokens=3, ignore_eos=True)])[0]) == 3
