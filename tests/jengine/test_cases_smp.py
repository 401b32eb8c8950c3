"""How tokens are chosen, on a model whose logits are known; the oracle is numpy."""

import numpy as np
import pytest
from scipy import stats

from jengine import SamplingParams
from jengine.testing import uniform, write_markov_checkpoint

VOCAB = 320
FORBIDDEN = -1e4


def _row(values):
    row = np.full(VOCAB, FORBIDDEN, np.float32)
    row[list(values)] = list(values.values())
    return row


@pytest.fixture(scope="module")
def make_markov(tmp_path_factory, make_llm):
    """Makes an engine whose logits after each of `tokens` are the same row."""

    def make(row, tokens, **options):
        folder = tmp_path_factory.mktemp("markov")
        write_markov_checkpoint(folder, dict.fromkeys(tokens, row), eos_token_id=None)
        return make_llm(folder, **options)

    return make


# A positive and a negative logit to penalise, and what then comes out best.
PENALISED = {5: 2.0, 6: -2.0, 7: 1.0, 8: 0.9}


def _penalise(row, prompt, output, presence, frequency, repetition):
    """The logits of one step, in float64, by the definition."""
    logits = row.astype(np.float64)
    for token in set(prompt) | set(output):
        factor = repetition if logits[token] < 0 else 1 / repetition
        logits[token] *= factor
    for token in set(output):
        logits[token] -= frequency * output.count(token) + presence
    return logits


def _greedy(row, prompt, count, **penalties):
    output = []
    for _ in range(count):
        output.append(int(np.argmax(_penalise(row, prompt, output, **penalties))))
    return output


PENALTIES = [
    {"presence": 0.0, "frequency": 0.0, "repetition": 2.0},
    {"presence": 1.5, "frequency": 0.0, "repetition": 1.0},
    {"presence": -1.5, "frequency": 0.0, "repetition": 1.0},
    {"presence": 0.0, "frequency": 0.6, "repetition": 1.0},
    {"presence": 0.35, "frequency": 0.25, "repetition": 1.3},
    {"presence": 0.0, "frequency": 0.0, "repetition": 1.0},
]


def _params(penalties, **options):
    names = {f"{name}_penalty": value for name, value in penalties.items()}
    return SamplingParams(**({"max_tokens": 6, "ignore_eos": True} | names | options))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"async_scheduling": False},
        {"max_num_batched_tokens": 8},  # the long prompts run in three chunks or more
        {"num_gpu_blocks_override": 9, "block_size": 8},  # and requests are preempted
    ],
    ids=["plain", "sync", "chunked", "preempted"],
)
def test_smp_05_penalties_count_the_right_tokens(make_markov, check_idle, options):
    row = _row(PENALISED)
    llm = make_markov(row, [*PENALISED, 30, 31, 0], **options)
    prompts = [
        [30],
        [5, 30],
        [5, 5, 6, 5, 30],
        [31] * 20 + [6, 30],  # longer than a block
        [0, 5, 31] * 8 + [30],
    ]
    asked = [(p, penalties) for p in prompts for penalties in PENALTIES]
    for _ in range(2):  # the second time prompts come from the prefix cache
        outputs = llm.generate(
            [prompt for prompt, _ in asked],
            [_params(penalties, temperature=0) for _, penalties in asked],
            use_tqdm=False,
        )
        for output, (prompt, penalties) in zip(outputs, asked, strict=True):
            expected = _greedy(row, prompt, 6, **penalties)
            assert output.outputs[0].token_ids == expected, (prompt, penalties)
    if "num_gpu_blocks_override" in options:
        assert llm.stats.num_preemptions > 0
    assert llm.stats.prefix_cache_hits > 0
    check_idle(llm)


def test_smp_05_penalised_draws_follow_the_distribution(make_markov):
    row = _row(PENALISED)
    llm = make_markov(row, [*PENALISED, 30])
    penalties = {"presence": 0.5, "frequency": 0.5, "repetition": 1.5}
    count = 1500
    outputs = llm.generate(
        [[5, 6, 30]] * count,
        [_params(penalties, seed=seed, max_tokens=2) for seed in range(count)],
        use_tqdm=False,
    )
    drawn = [tuple(output.outputs[0].token_ids) for output in outputs]
    expected = {}
    first = _softmax(_penalise(row, [5, 6, 30], [], **penalties))
    for one in PENALISED:
        second = _softmax(_penalise(row, [5, 6, 30], [one], **penalties))
        for two in PENALISED:
            expected[one, two] = first[one] * second[two] * count
    assert set(drawn) <= set(expected)
    pairs = [pair for pair, wanted in expected.items() if wanted >= 5]
    rest = [count - sum(expected[pair] for pair in pairs)]
    found = [drawn.count(pair) for pair in pairs]
    wanted = [expected[pair] for pair in pairs]
    if rest[0] > 5:
        found, wanted = [*found, count - sum(found)], [*wanted, *rest]
    else:
        wanted = list(np.array(wanted) * sum(found) / sum(wanted))
    assert stats.chisquare(found, wanted).pvalue > 1e-4


def _softmax(logits):
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def test_biases_and_allowed_ids_hold_for_their_own_row_only(make_markov, check_idle):
    llm = make_markov(_row({5: 2.0, 6: 1.0, 7: 0.5, 8: 0.0}), [5, 6, 7, 8, 30])
    params = {
        "plain": {},
        "bias": {"logit_bias": {7: 1.6, 6: -5}},
        "ban": {"logit_bias": {5: -100}},
        "allowed": {"allowed_token_ids": [7, 8]},
        "allowed and bias": {"allowed_token_ids": [7, 8], "logit_bias": {8: 0.6}},
        "lifted": {"logit_bias": {300: 2e4}},
        "after": {},
    }
    expected = [5, 7, 6, 7, 8, 300, 5]
    made = [
        SamplingParams(temperature=0, max_tokens=3, ignore_eos=True, **options)
        for options in params.values()
    ]
    for turn in range(3):  # later requests sit where others sat before
        order = np.roll(np.arange(len(made)), turn)
        outputs = llm.generate(
            [[30]] * len(made), [made[i] for i in order], use_tqdm=False
        )
        first = [output.outputs[0].token_ids[0] for output in outputs]
        assert first == [expected[i] for i in order]
    (output,) = llm.generate([30], made[2], use_tqdm=False)
    assert output.outputs[0].token_ids == [6, 6, 6]
    check_idle(llm)


def test_logprobs_stay_raw_beside_biases_and_penalties(make_markov):
    row = _row({5: 2.0, 6: 1.0, 7: 0.5, 8: 0.0})
    llm = make_markov(row, [5, 6, 7, 8, 30])
    params = SamplingParams(
        temperature=0,
        max_tokens=2,
        logprobs=2,
        logit_bias={7: 10},
        repetition_penalty=2.0,
    )
    (output,) = llm.generate([5, 30], params, use_tqdm=False)
    done = output.outputs[0]
    raw = row - np.log(np.exp(row.astype(np.float64)).sum())
    assert done.token_ids == [7, 7]
    for entry in done.logprobs:
        assert list(entry) == [5, 6, 7]
        for token, logprob in entry.items():
            assert logprob.logprob == pytest.approx(raw[token], abs=1e-4)
        assert [logprob.rank for logprob in entry.values()] == [1, 2, 3]


def test_smp_03_n_completions(make_markov, check_idle):
    tokens = range(100, 300)
    row = uniform(tokens, VOCAB)[100]
    llm = make_markov(row, [*tokens, 30])

    def ids(n, prompts=1, **options):
        params = SamplingParams(n=n, max_tokens=8, ignore_eos=True, **options)
        outputs = llm.generate([[30]] * prompts, params, use_tqdm=False)
        assert len(outputs) == prompts
        for output in outputs:
            assert [done.index for done in output.outputs] == list(range(n))
            assert output.finished
        return [[tuple(d.token_ids) for d in output.outputs] for output in outputs]

    (seeded,) = ids(4, seed=5)
    assert len(set(seeded)) == 4
    assert ids(4, seed=5) == [seeded]
    assert ids(1, seed=5) == [[seeded[0]]]  # child i draws by seed + i
    assert ids(1, seed=7) == [[seeded[2]]]
    (free,) = ids(4)
    assert len(set(free)) == 4
    assert set(ids(4)[0]).isdisjoint(free)
    many = ids(2, prompts=20)
    assert len({one for pair in many for one in pair}) == 40
    (greedy,) = ids(4, temperature=0)
    assert len(set(greedy)) == 1
    check_idle(llm)


@pytest.mark.parametrize("n", [0, -1, 1.5, "2"])
def test_smp_03_wrong_n(n):
    with pytest.raises(ValueError, match="n is"):
        SamplingParams(n=n)


def test_smp_03_each_completion_has_its_own_end(make_markov, check_idle):
    llm = make_markov(uniform(range(100, 108), VOCAB)[100], [*range(100, 108), 30])
    params = SamplingParams(n=3, max_tokens=12, seed=1, stop_token_ids=[106])
    (output,) = llm.generate([[30]], params, use_tqdm=False)
    for done in output.outputs:
        stops = [i for i in done.token_ids if i == 106]
        if done.finish_reason == "stop":
            assert stops == [done.stop_reason] == done.token_ids[-1:]
        else:
            assert (done.finish_reason, stops, len(done.token_ids)) == (
                "length",
                [],
                12,
            )
    assert len({done.finish_reason for done in output.outputs}) == 2
    check_idle(llm)
