"""Log-probabilities of prompts and outputs, by cases of public reports.

The oracles are transformers in float32, recorded, and numpy on logits that are known.
"""

import json
import pathlib

import numpy as np
import pytest

from jengine import FlatLogprobs, RequestOutputKind, SamplingParams
from jengine.errors import SamplingParamsError
from jengine.testing import write_markov_checkpoint

RECORD = pathlib.Path(__file__).parent / "data" / "f2_prompt_logprobs.json"
VOCAB = 320
TOKEN = 5  # the only one that prompts hold: its row decides what comes


@pytest.fixture(scope="module")
def prompts():
    return json.loads(RECORD.read_text())


def _tokens(entry):
    return {"prompt_token_ids": entry["prompt"]}


def _check_prompt(found, entry, wanted):
    """Every token but the first is reported as transformers sees it."""
    assert len(found) == len(entry["prompt"])
    assert found[0] is None
    lines = zip(
        found[1:],
        entry["prompt"][1:],
        entry["logprobs"],
        entry["ranks"],
        entry["best_ids"],
        entry["best_logprobs"],
        strict=True,
    )
    for position, token, logprob, rank, best_ids, best in lines:
        assert position[token].logprob == pytest.approx(logprob, abs=1e-4)
        assert position[token].rank == rank
        listed = [*position]
        assert listed[:wanted] == best_ids[:wanted]
        assert listed[wanted:] == ([] if token in best_ids[:wanted] else [token])
        shown = [position[one].logprob for one in best_ids[:wanted]]
        assert shown == pytest.approx(best[:wanted], abs=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"async_scheduling": False},
        {"max_num_batched_tokens": 8},
        # Prompts are preempted before they are through.
        {"num_gpu_blocks_override": 24, "block_size": 4, "max_num_batched_tokens": 8},
        {"enable_prefix_caching": False},
    ],
    ids=["plain", "sync", "chunked", "preempted", "uncached"],
)
def test_lpr_01_prompts_are_reported_whatever_the_schedule(
    f2_dir, make_llm, prompts, check_idle, options
):
    llm = make_llm(f2_dir, **options)
    params = [
        SamplingParams(
            temperature=0, max_tokens=3, ignore_eos=True, prompt_logprobs=wanted
        )
        for wanted in (0, 2, 3, 1)
    ]
    neighbour = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
    asked = [_tokens(entry) for entry in prompts]
    # Neighbours without reports, and a cache that knows every prompt already.
    plain = llm.generate(asked[:3], neighbour, use_tqdm=False)
    both = llm.generate(
        [*asked[:3], *asked], [*[neighbour] * 3, *params], use_tqdm=False
    )
    for output, entry, one in zip(both[3:], prompts, params, strict=True):
        _check_prompt(output.prompt_logprobs, entry, one.prompt_logprobs)
        assert output.num_cached_tokens == 0
    for output, again, first in zip(both, both[3:6], plain, strict=False):
        assert output.prompt_logprobs is None
        assert output.outputs[0].token_ids == first.outputs[0].token_ids
        assert again.outputs[0].token_ids == first.outputs[0].token_ids[:3]
    if "num_gpu_blocks_override" in options:
        assert llm.stats.num_preemptions > 0
    check_idle(llm)


@pytest.fixture(scope="module")
def f2(f2_dir, make_llm):
    return make_llm(f2_dir)


def test_lpr_01_several_completions_share_one_report(f2, prompts):
    entry = prompts[2]
    params = SamplingParams(n=3, seed=1, max_tokens=2, prompt_logprobs=2)
    (output,) = f2.generate([_tokens(entry)], params, use_tqdm=False)
    _check_prompt(output.prompt_logprobs, entry, 2)
    assert [one.index for one in output.outputs] == [0, 1, 2]


def test_lpr_01_a_prompt_of_one_token_has_nothing_to_report(f2):
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=2)
    (output,) = f2.generate([{"prompt_token_ids": [9]}], params, use_tqdm=False)
    assert output.prompt_logprobs == [None]


def test_lpr_01_what_a_report_computes_is_cached_for_others(f2, prompts):
    entry = dict(prompts[3], prompt=prompts[3]["prompt"][::-1])  # not seen before
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
    f2.generate([_tokens(entry)], params, use_tqdm=False)
    plain = SamplingParams(temperature=0, max_tokens=1)
    (output,) = f2.generate([_tokens(entry)], plain, use_tqdm=False)
    assert output.num_cached_tokens == 64
    anew = SamplingParams(temperature=0, max_tokens=1, skip_reading_prefix_cache=True)
    (again,) = f2.generate([_tokens(entry)], anew, use_tqdm=False)
    assert again.num_cached_tokens == 0
    assert again.outputs[0].token_ids == output.outputs[0].token_ids


@pytest.mark.parametrize("kind", RequestOutputKind)
def test_lpr_01_streams_bring_the_report_with_the_first_token(f2, prompts, kind):
    entry = prompts[1]
    params = SamplingParams(
        temperature=0, max_tokens=3, ignore_eos=True, prompt_logprobs=1
    )
    outputs = [*f2.stream(_tokens(entry), params, output_kind=kind)]
    _check_prompt(outputs[0].prompt_logprobs, entry, 1)
    later = [output.prompt_logprobs is None for output in outputs[1:]]
    assert later == [kind is RequestOutputKind.DELTA] * len(later)


def test_lpr_01_a_report_survives_a_step_that_breaks_off(f2_dir, make_llm, prompts):
    """The step may have learnt tokens and lost what it said of the prompt."""
    llm = make_llm(f2_dir, max_num_batched_tokens=16)
    engine = llm.llm_engine
    collect, count = engine.runner.collect, 0

    def failing(handle):
        nonlocal count
        count += 1
        found = collect(handle)
        if count in (2, 7):
            raise OSError("device lost")
        return found

    engine.runner.collect = failing
    params = SamplingParams(
        temperature=0, max_tokens=2, ignore_eos=True, prompt_logprobs=2, logprobs=0
    )
    engine.add_request("a", _tokens(prompts[3]), params)
    outputs = []
    while engine.has_unfinished_requests():
        try:
            outputs += engine.step()
        except OSError:
            continue
    _check_prompt(outputs[-1].prompt_logprobs, prompts[3], 2)
    assert len(outputs[-1].outputs[0].logprobs) == 2
    assert count > 7


# Distinct values: the best ids are 20, 21, 22 and so on, and the others are alike.
ROW = np.full(VOCAB, -3.0, np.float32)
ROW[20:40] = 2.0 - 0.25 * np.arange(20)


def _log_softmax(row):
    row = row.astype(np.float64)
    return row - np.log(np.sum(np.exp(row)))


@pytest.fixture(scope="module")
def make_row(tmp_path_factory, make_llm):
    folder = tmp_path_factory.mktemp("row")
    write_markov_checkpoint(folder, {TOKEN: ROW}, eos_token_id=None)
    made = {}

    def make(mode="raw_logprobs"):
        if mode not in made:
            made[mode] = make_llm(folder, logprobs_mode=mode, max_logprobs=-1)
        return made[mode]

    return make


SETTINGS = [
    {},
    {"temperature": 0.5},
    {"temperature": 0.7, "top_k": 3},
    {"temperature": 1.5, "top_p": 0.4},
    {"min_p": 0.3},
    {"logit_bias": {21: 3.0, 200: 5.0}},
    {"repetition_penalty": 2.0},
    {"allowed_token_ids": [22, 24, 300], "temperature": 2.0},
    {"temperature": 0.0, "logit_bias": {25: 4.0}},
]


def _processed(options):
    """The logits of the first draw by the definition, in float64."""
    row = ROW.astype(np.float64)
    for token, bias in options.get("logit_bias", {}).items():
        row[token] += bias
    if allowed := options.get("allowed_token_ids"):
        kept = np.full(VOCAB, -np.inf)
        kept[allowed] = row[allowed]
        row = kept
    if penalty := options.get("repetition_penalty"):
        row[TOKEN] *= penalty if row[TOKEN] < 0 else 1 / penalty
    temperature = options.get("temperature", 1.0)
    if temperature == 0:
        return row
    row /= temperature
    return np.where(_kept(row, options), row, -np.inf)


def _kept(row, options):
    chances = np.exp(row - row.max())
    chances /= chances.sum()
    order = np.argsort(-chances, kind="stable")
    kept = chances >= options.get("min_p", 0.0) * chances.max()
    if top_k := options.get("top_k"):
        kept[order[top_k:]] = False
    if top_p := options.get("top_p"):
        before = np.cumsum(chances[order]) - chances[order]
        kept[order[before >= top_p]] = False
    return kept


def _draw_once(llm, num_logprobs):
    """One draw under each of the settings."""
    params = [
        SamplingParams(
            max_tokens=1, logprobs=num_logprobs, seed=i, ignore_eos=True, **one
        )
        for i, one in enumerate(SETTINGS)
    ]
    prompts = [{"prompt_token_ids": [TOKEN]}] * len(params)
    return llm.generate(prompts, params, use_tqdm=False)


@pytest.mark.parametrize("mode", ["raw_logprobs", "raw_logits"])
def test_lpr_02_raw_values_do_not_depend_on_settings(make_row, mode):
    expected = ROW if mode == "raw_logits" else _log_softmax(ROW)
    for output in _draw_once(make_row(mode), 5):
        (completion,) = output.outputs
        (entry,) = completion.logprobs
        assert [*entry][:5] == [20, 21, 22, 23, 24]
        for token, found in entry.items():
            assert found.logprob == pytest.approx(expected[token], abs=1e-4)
            assert found.rank == 1 + np.sum(ROW[token] < ROW)
        chosen = expected[completion.token_ids[0]]
        assert completion.cumulative_logprob == pytest.approx(chosen, abs=1e-4)


@pytest.mark.parametrize("mode", ["processed_logprobs", "processed_logits"])
def test_lpr_02_processed_values_are_those_that_were_drawn_by(make_row, mode):
    outputs = _draw_once(make_row(mode), 3)
    for output, options in zip(outputs, SETTINGS, strict=True):
        logits = _processed(options)
        expected = logits if mode.endswith("logits") else _log_softmax(logits)
        (entry,) = output.outputs[0].logprobs
        assert next(iter(entry)) == np.argmax(logits)
        assert np.isfinite(entry[output.outputs[0].token_ids[0]].logprob)
        for token, found in entry.items():
            assert found.logprob == pytest.approx(expected[token], abs=1e-4)


@pytest.mark.parametrize("mode", ["raw_logits", "processed_logprobs"])
def test_lpr_02_prompts_are_reported_raw_in_every_mode(make_row, mode):
    params = SamplingParams(max_tokens=1, temperature=0.3, prompt_logprobs=0)
    prompt = {"prompt_token_ids": [TOKEN, 33]}
    (output,) = make_row(mode).generate([prompt], params, use_tqdm=False)
    expected = ROW if mode == "raw_logits" else _log_softmax(ROW)
    assert output.prompt_logprobs[1][33].logprob == pytest.approx(
        expected[33], abs=1e-4
    )


@pytest.mark.parametrize("count", [None, 0, 1, 5, 320, -1, True])
def test_lpr_03_count_rank_and_order(make_row, count):
    params = [
        SamplingParams(temperature=2, logprobs=count, max_tokens=1, seed=seed)
        for seed in range(8)
    ]
    prompts = [{"prompt_token_ids": [TOKEN]}] * len(params)
    outputs = make_row().generate(prompts, params, use_tqdm=False)
    wanted = VOCAB if count == -1 else int(count or 0)
    order = np.argsort(-ROW, kind="stable")
    for output in outputs:
        (completion,) = output.outputs
        if count is None:
            assert completion.logprobs is None
            assert completion.cumulative_logprob is None
            continue
        (entry,) = completion.logprobs
        token = completion.token_ids[0]
        assert [*entry][:wanted] == order[:wanted].tolist()
        assert len(entry) == wanted + (token not in order[:wanted])
        ranks = {t: 1 + int(np.sum(ROW[t] < ROW)) for t in entry}
        assert {t: found.rank for t, found in entry.items()} == ranks


def test_lpr_03_listed_ids_are_reported_whatever_their_rank(make_row):
    listed = [300, 20, 7]
    params = [
        SamplingParams(temperature=0, max_tokens=2, logprob_token_ids=listed),
        SamplingParams(temperature=0, max_tokens=2, logprobs=2),
        SamplingParams(temperature=0, max_tokens=2, logprobs=1, logprob_token_ids=[21]),
        SamplingParams(temperature=0, max_tokens=2),
    ]
    prompts = [{"prompt_token_ids": [TOKEN]}] * len(params)
    outputs = make_row().generate(prompts, params, use_tqdm=False)
    first = [
        output.outputs[0].logprobs and output.outputs[0].logprobs[0]
        for output in outputs
    ]
    expected = _log_softmax(ROW)
    assert [*first[0]] == [20, 300, 7]
    assert [found.rank for found in first[0].values()] == [1, None, None]
    assert [*first[1]] == [20, 21]
    assert [*first[2]] == [20, 21]
    assert first[2][21].rank is None
    assert first[3] is None
    for entry in first[:3]:
        for token, found in entry.items():
            assert found.logprob == pytest.approx(expected[token], abs=1e-4)


@pytest.mark.parametrize(
    "bad",
    [
        {"prompt_logprobs": 21},
        {"prompt_logprobs": -2},
        {"prompt_logprobs": "5"},
        {"logprob_token_ids": [VOCAB]},
        {"logprob_token_ids": [-1]},
        {"logprob_token_ids": [*range(129)]},
    ],
    ids=str,
)
def test_lpr_03_wrong_reports_are_refused(f2, check_idle, bad):
    prompts = [{"prompt_token_ids": [5]}] * 2
    with pytest.raises(SamplingParamsError, match=next(iter(bad))):
        f2.generate(prompts, [SamplingParams(), SamplingParams(**bad)], use_tqdm=False)
    check_idle(f2)


def test_flat_logprobs_hold_the_same(f2, prompts):
    options = {"temperature": 0, "max_tokens": 4, "logprobs": 2, "prompt_logprobs": 1}
    both = [SamplingParams(**options, flat_logprobs=flat) for flat in (False, True)]
    nested, flat = f2.generate([_tokens(prompts[1])] * 2, both, use_tqdm=False)
    assert isinstance(flat.prompt_logprobs, FlatLogprobs)
    assert flat.prompt_logprobs == nested.prompt_logprobs
    assert isinstance(flat.outputs[0].logprobs, FlatLogprobs)
    assert flat.outputs[0].logprobs == nested.outputs[0].logprobs
