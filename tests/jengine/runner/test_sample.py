"""The sampler against brute force in numpy, float64, and closed-form odds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from jengine.runner import sample
from jengine.runner.sample import SampleMode, SamplingRows

ALL = SampleMode(random=True, filtered=True)


def _rows(count, **changes):
    """Rows of plain random sampling, seed = row number, with some columns changed."""
    values = {
        "seed_low": np.arange(count),
        "seed_high": np.zeros(count),
        "position": np.full(count, 7),
        "top_k": np.zeros(count),
        "temperature": np.ones(count),
        "top_p": np.ones(count),
        "min_p": np.zeros(count),
    } | {name: np.broadcast_to(value, count) for name, value in changes.items()}
    floats = ("temperature", "top_p", "min_p")
    return SamplingRows(
        **{
            name: jnp.asarray(v, jnp.float32 if name in floats else jnp.int32)
            for name, v in values.items()
        }
    )


draw_many = jax.jit(sample.sample_tokens, static_argnums=2)
token_logprobs = jax.jit(sample.token_logprobs, static_argnums=2)


def _count(logits, mode=ALL, draws=2000, **changes):
    rows = _rows(draws, **changes)
    many = jnp.broadcast_to(jnp.asarray(logits, jnp.float32), (draws, len(logits)))
    return np.bincount(np.asarray(draw_many(many, rows, mode)), minlength=len(logits))


def _check_odds(counts, odds):
    from scipy import stats

    assert counts[odds == 0].sum() == 0
    likely = odds > 0
    if likely.sum() > 1:
        expected = odds[likely] * counts.sum()
        assert stats.chisquare(counts[likely], expected).pvalue > 1e-4


P4 = [0.4, 0.3, 0.2, 0.1]
# (top_k, top_p, min_p) and the ids that remain of the four.
SUPPORTS = [
    ((-0, 1, 0), 4), ((1, 1, 0), 1), ((2, 1, 0), 2), ((4, 1, 0), 4),
    ((320, 1, 0), 4), ((1000, 1, 0), 4), ((0, 0.39, 0), 1), ((0, 0.41, 0), 2),
    ((0, 0.69, 0), 2), ((0, 0.71, 0), 3), ((0, 1e-9, 0), 1), ((0, 1, 0.24), 4),
    ((0, 1, 0.26), 3), ((0, 1, 0.51), 2), ((0, 1, 0.76), 1), ((0, 1, 1), 1),
    ((2, 0.5, 0), 1),
]  # fmt: skip


@pytest.mark.parametrize(("options", "remain"), SUPPORTS)
def test_smp_04_supports_and_odds(options, remain):
    logits = np.full(320, -1e4)
    logits[[50, 60, 70, 80]] = np.log(P4)
    top_k, top_p, min_p = options
    counts = _count(logits, top_k=top_k, top_p=top_p, min_p=min_p)
    odds = np.zeros(320)
    odds[[50, 60, 70, 80][:remain]] = P4[:remain]
    _check_odds(counts, odds / odds.sum())


def test_smp_04_rows_do_not_mix_their_filters():
    logits = jnp.asarray(
        np.tile(np.log([*P4, 1e-9, 1e-9]), (len(SUPPORTS), 1)), jnp.float32
    )
    columns = np.array([options for options, _ in SUPPORTS], float)
    for seed in range(40):
        rows = _rows(
            len(SUPPORTS),
            seed_low=seed,
            top_k=columns[:, 0],
            top_p=columns[:, 1],
            min_p=columns[:, 2],
        )
        drawn = np.asarray(draw_many(logits, rows, ALL))
        for token, (options, remain) in zip(drawn, SUPPORTS, strict=True):
            assert token < (6 if options[0] == 320 or remain == 4 else remain)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("vocab_size", [3, 256, 257, 1000])
def test_draws_follow_the_tempered_softmax(temperature, vocab_size):
    rng = np.random.default_rng(vocab_size)
    logits = np.full(vocab_size, -1e4)
    live = rng.choice(vocab_size, size=min(vocab_size, 12), replace=False)
    logits[live] = rng.normal(size=len(live))
    counts = _count(
        logits, SampleMode(random=True), draws=4000, temperature=temperature
    )
    weights = np.exp(logits / temperature)
    _check_odds(counts, weights / weights.sum())


def test_smp_01_tiny_temperatures_and_greedy_rows_in_a_random_batch():
    logits = np.zeros((3, 300), np.float32)
    logits[:, 41], logits[:, 40] = 5.5, 5.0
    rows = _rows(3, temperature=[0.0, 0.01, 1e-3])
    assert draw_many(jnp.asarray(logits), rows, ALL).tolist() == [41, 41, 41]


def test_greedy_takes_the_first_of_equals():
    logits = jnp.asarray([[1.0, 3.0, 3.0, 2.0]], jnp.float32)
    assert sample.argmax(logits).tolist() == [1]


def test_where_nothing_may_be_drawn_nothing_is():
    logits = jnp.asarray([[-jnp.inf] * 4, [1.0, 3.0, 2.0, 0.0]], jnp.float32)
    assert sample.argmax(logits).tolist() == [4, 1]
    assert draw_many(logits, _rows(2), SampleMode(random=True)).tolist()[0] == 4


@pytest.mark.parametrize("options", [{}, {"top_k": 5}, {"top_p": 0.3}, {"min_p": 0.5}])
def test_infinite_logits_are_the_only_ones_drawn(options):
    logits = np.zeros((2, 300), np.float32)
    logits[0, 7] = np.inf
    logits[1, [7, 9]] = np.inf
    assert set(np.asarray(sample.argmax(jnp.asarray(logits)))) == {7}
    many = jnp.asarray(np.repeat(logits, 50, axis=0))
    rows = _rows(100, **{name: [value] * 100 for name, value in options.items()})
    drawn = np.asarray(draw_many(many, rows, ALL))
    assert set(drawn[:50]) == {7}
    assert set(drawn[50:]) <= {7, 9}


@pytest.mark.parametrize("mode", [SampleMode(), SampleMode(random=True), ALL])
def test_a_row_of_nan_is_reported_and_spoils_no_other(mode):
    logits = np.zeros((3, 300), np.float32)
    logits[:, 9] = 30.0
    logits[1, 5] = np.nan
    assert draw_many(jnp.asarray(logits), _rows(3), mode).tolist() == [9, 300, 9]


def test_smp_02_a_draw_depends_on_seed_and_position_alone():
    logits = jnp.zeros((5, 200), jnp.float32)
    rows = _rows(
        5, seed_low=[7, 8, 7, 7, 7], position=[3, 3, 3, 4, 3], seed_high=[0, 0, 0, 0, 1]
    )
    first = draw_many(logits, rows, ALL).tolist()
    assert first[0] == first[2]
    assert len({first[0], first[1], first[3], first[4]}) == 4
    alone = jax.tree.map(lambda column: column[2:3], rows)
    assert draw_many(logits[:1], alone, SampleMode(random=True)).tolist() == first[:1]
    mixed = rows._replace(temperature=jnp.asarray([1, 0, 1, 0, 1], jnp.float32))
    again = draw_many(logits, mixed, ALL).tolist()
    assert again[0] == first[0]
    assert again[1] == again[3] == 0


def test_smp_02_seeds_and_positions_are_uniform():
    for changes in (
        {"seed_low": np.arange(5000)},
        {"position": np.arange(5000), "seed_low": 3},
    ):
        counts = _count(np.zeros(20), SampleMode(random=True), draws=5000, **changes)
        _check_odds(counts, np.full(20, 1 / 20))


@settings(max_examples=30)
@given(hnp.arrays(np.float32, (2, 50), elements=st.integers(-8, 8).map(float)))
def test_lpr_03_logprobs_and_ranks(logits):
    token = np.array([3, 49], np.int32)
    value, rank, best, ids = token_logprobs(jnp.asarray(logits), jnp.asarray(token), 5)
    wide = logits.astype(np.float64)
    want = wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
    for row in range(2):
        assert value[row] == pytest.approx(want[row, token[row]], abs=1e-5)
        assert rank[row] == 1 + (wide[row] > wide[row, token[row]]).sum()
        np.testing.assert_allclose(best[row], np.sort(want[row])[::-1][:5], atol=1e-5)
        np.testing.assert_allclose(
            best[row], want[row, np.asarray(ids[row])], atol=1e-5
        )


def test_a_mask_allows_exactly_the_ids_whose_bits_are_set():
    rng = np.random.default_rng(0)
    allowed = rng.random((3, 70)) < 0.4
    bits = np.zeros((3, 96), np.uint8)
    bits[:, :70] = allowed
    words = np.packbits(bits, axis=1, bitorder="little").view(np.int32)
    logits = rng.normal(size=(3, 70)).astype(np.float32)
    got = np.asarray(sample.apply_mask(jnp.asarray(logits), jnp.asarray(words)))
    np.testing.assert_array_equal(got, np.where(allowed, logits, -np.inf))


def test_the_mask_of_the_figure_f5():
    words = jnp.asarray([[0b00010101]], jnp.int32)
    got = sample.apply_mask(jnp.zeros((1, 8), jnp.float32), words)
    assert np.isfinite(np.asarray(got))[0].tolist() == [
        True, False, True, False, True, False, False, False,
    ]  # fmt: skip
