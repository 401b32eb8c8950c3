"""Bad input is refused before anything runs, and costs only itself."""

import dataclasses

import pytest

from jengine import SamplingParams
from jengine.testing import (
    scripted,
    write_byte_tokenizer,
    write_markov_checkpoint,
    write_random_checkpoint,
    write_sentencepiece_tokenizer,
)

CONTROL = list(range(20, 40))


@pytest.fixture(scope="module")
def llm(f2_dir, make_llm):
    return make_llm(f2_dir, max_model_len=64)


@pytest.fixture
def control(llm, check_idle):
    """A prompt that must give the same before and after whatever a test does."""

    def run():
        params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
        (output,) = llm.generate(CONTROL, params, use_tqdm=False)
        return output.outputs[0].token_ids

    before = run()
    yield before
    check_idle(llm)
    assert run() == before


def _greedy(count=4):
    return SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)


@pytest.mark.parametrize(
    "prompts",
    [None, [None], [[]], {"prompt_token_ids": []}, [[1, 2], []], [{}], 3, b"x"],
)
def test_bad_01_empty_prompts_are_refused(llm, control, prompts):
    with pytest.raises(ValueError, match="prompt"):
        llm.generate(prompts, _greedy(), use_tqdm=False)


def test_bad_01_no_prompts_give_no_outputs(llm, control):
    assert llm.generate([], _greedy(), use_tqdm=False) == []


@pytest.mark.parametrize("special", [True, False])
def test_bad_01_text_that_is_empty(tmp_path, make_llm, special):
    write_random_checkpoint(tmp_path, vocab_size=512)
    if special:  # adds a BOS, so that an empty text is a prompt of one token
        write_sentencepiece_tokenizer(tmp_path)
    else:
        write_byte_tokenizer(tmp_path)
    llm = make_llm(tmp_path, skip_tokenizer_init=False)
    if special:
        (output,) = llm.generate("", _greedy(), use_tqdm=False)
        assert len(output.prompt_token_ids) == 1
        assert len(output.outputs[0].token_ids) == 4
        return
    for prompts in ("", ["ok", ""]):
        with pytest.raises(ValueError, match="at least one token"):
            llm.generate(prompts, _greedy(), use_tqdm=False)
    assert not llm.llm_engine.has_unfinished_requests()


@pytest.mark.parametrize("bad", [320, 325, -1, 2**31, 2**70, 3.0, True, "3", [1], None])
def test_bad_02_ids_outside_the_vocabulary_are_refused(llm, control, bad):
    with pytest.raises(ValueError, match=r"prompt"):
        llm.generate({"prompt_token_ids": [5, bad, 6]}, _greedy(), use_tqdm=False)
    with pytest.raises(ValueError, match=r"prompts\[1\]"):
        llm.generate([CONTROL, [5, bad, 6]], _greedy(), use_tqdm=False)


@pytest.mark.parametrize("bad", [[320], [-1], ["x"], [2.5], [True]])
def test_bad_02_stop_ids_outside_the_vocabulary_are_refused(llm, control, bad):
    def generate():
        params = SamplingParams(temperature=0, stop_token_ids=bad)
        llm.generate([CONTROL, CONTROL], [_greedy(), params], use_tqdm=False)

    with pytest.raises(ValueError, match="stop_token_ids"):
        generate()


NO_BIAS = [
    *[{token: 1} for token in (320, -1, 2**70, "x", "5", 5.0, True)],
    *[{5: bias} for bias in (float("nan"), float("inf"), None, "1")],
    [5],
    5,
]


@pytest.mark.parametrize("bad", NO_BIAS, ids=str)
def test_bad_02_biases_of_ids_that_do_not_exist_are_refused(llm, control, bad):
    with pytest.raises(ValueError, match="logit_bias"):
        llm.generate(
            [CONTROL, CONTROL],
            [_greedy(), SamplingParams(logit_bias=bad)],
            use_tqdm=False,
        )


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize(
    "bias",
    [1e9, 3e38, 1e39, 1e300],
)
def test_bad_02_large_finite_biases_decide_their_own_row_only(
    llm, control, temperature, bias
):
    params = [
        SamplingParams(
            temperature=temperature, max_tokens=3, logit_bias={7: sign * bias}
        )
        for sign in (1, -1)
    ]
    outputs = llm.generate(
        [CONTROL] * 3,
        [*params, dataclasses.replace(_greedy(), max_tokens=6)],
        use_tqdm=False,
    )
    wanted, banned, plain = [output.outputs[0].token_ids for output in outputs]
    assert wanted == [7, 7, 7]
    assert 7 not in banned
    assert plain == control


NO_IDS = [[], [320], [-1], [5, 320], [2**70], ["5"], [5.0], [True], [None], 5, "5"]


@pytest.mark.parametrize("bad", NO_IDS, ids=str)
def test_bad_02_lists_of_allowed_ids_that_make_no_sense_are_refused(llm, control, bad):
    with pytest.raises(ValueError, match="allowed_token_ids"):
        llm.generate(
            [CONTROL, CONTROL],
            [_greedy(), SamplingParams(allowed_token_ids=bad)],
            use_tqdm=False,
        )


def test_bad_02_nothing_left_to_draw_is_refused_or_an_error(llm, control):
    # Each is fine by itself; together they leave nothing.
    params = SamplingParams(allowed_token_ids=[2], min_tokens=2, stop_token_ids=[2])
    with pytest.raises(ValueError, match="allowed_token_ids"):
        llm.generate(CONTROL, params, use_tqdm=False)
    params = SamplingParams(allowed_token_ids=[5], logit_bias={5: -3e38}, max_tokens=2)
    (output,) = llm.generate(CONTROL, params, use_tqdm=False)
    assert output.outputs[0].token_ids == [5, 5]


PENALTIES = ("presence_penalty", "frequency_penalty", "repetition_penalty")
NO_PENALTIES = [float("nan"), float("inf"), -2.1, "0.5", [1], True, 10**400]


@pytest.mark.parametrize("field", PENALTIES)
@pytest.mark.parametrize("bad", NO_PENALTIES, ids=lambda bad: str(bad)[:9])
def test_bad_05_penalties_that_are_none_are_refused(llm, control, field, bad):
    with pytest.raises(ValueError, match=field):
        llm.generate(
            [CONTROL, CONTROL],
            [_greedy(), SamplingParams(**{field: bad})],
            use_tqdm=False,
        )


def test_bad_05_penalties_at_their_limits(llm, control):
    wide = dataclasses.replace(_greedy(), max_tokens=8)
    fields = [
        {"repetition_penalty": 0.0},
        {"presence_penalty": 2.01},
        {"frequency_penalty": -2.01},
    ]
    for field in fields:
        with pytest.raises(ValueError, match=next(iter(field))):
            dataclasses.replace(wide, **field)
    params = [
        dataclasses.replace(wide, **{name: value})
        for name, value in [
            *[(name, sign * 2) for name in PENALTIES[:2] for sign in (1, -1)],
            *[("repetition_penalty", value) for value in (1e-3, 0.5, 2, 1e3)],
            *[(name, None) for name in PENALTIES],
        ]
    ]
    outputs = llm.generate([CONTROL] * len(params), params, use_tqdm=False)
    ids = [output.outputs[0].token_ids for output in outputs]
    assert all(len(one) == 8 and max(one) < 320 for one in ids)
    assert len(set(ids[7])) == 8  # nothing twice, and nothing of the prompt
    assert not set(ids[7]) & set(CONTROL)
    assert ids[8] == ids[9] == ids[10]  # None is the default
    assert ids[8][:6] == control


def test_bad_05_absurd_repetition_penalties_draw_what_exists(llm, control):
    params = [
        SamplingParams(repetition_penalty=1e-38, seed=seed, max_tokens=1)
        for seed in range(8)
    ]
    outputs = llm.generate([CONTROL] * 8, params, use_tqdm=False)
    drawn = {output.outputs[0].token_ids[0] for output in outputs}
    assert drawn <= set(CONTROL)


@pytest.mark.parametrize("bad", [21, 320, -1, 10**9])
def test_lpr_03_more_logprobs_than_the_cap_are_refused(llm, control, bad):
    params = SamplingParams(logprobs=bad)
    with pytest.raises(ValueError, match="logprobs"):
        llm.generate(CONTROL, params, use_tqdm=False)


@pytest.fixture(scope="module")
def narrow(tmp_path_factory, make_llm):
    """A model of 320 ids with a tokenizer of fewer; the script passes through 315."""
    folder = tmp_path_factory.mktemp("narrow")
    write_byte_tokenizer(folder)
    script = [65, 66, 315, 67, 318, 319, 68]
    write_markov_checkpoint(
        folder, scripted(script, 320), vocab_size=320, eos_token_id=None
    )
    return make_llm(folder, skip_tokenizer_init=False)


def test_bad_03_ids_beyond_the_tokenizer_have_no_text(narrow):
    hf = narrow.get_tokenizer()
    assert max(hf.get_vocab().values()) < 315
    params = SamplingParams(temperature=0, max_tokens=6, logprobs=5)
    (output,) = narrow.generate({"prompt_token_ids": [65]}, params, use_tqdm=False)
    done = output.outputs[0]
    assert done.token_ids == [66, 315, 67, 318, 319, 68]
    assert done.text == hf.decode([66, 67, 68])
    assert done.logprobs[1][315].decoded_token == ""


@pytest.mark.parametrize("long", [64, 65, 500])
def test_bad_04_too_long_prompts_are_refused_with_both_numbers(llm, control, long):
    prompt = [7] * long
    with pytest.raises(ValueError, match=rf"{long}.*63"):
        llm.generate([CONTROL, prompt, CONTROL], _greedy(), use_tqdm=False)
    with pytest.raises(ValueError, match=rf"{long}.*63"):
        llm.llm_engine.add_request("long", prompt, _greedy())


@pytest.mark.parametrize("max_tokens", [None, 1, 2, 10**9])
def test_bad_04_total_length_never_exceeds_max_model_len(
    llm, control, f2_greedy, max_tokens
):
    entries = [f2_greedy[n - 1] for n in (61, 62, 63, 5)]
    params = dataclasses.replace(_greedy(), max_tokens=max_tokens)
    outputs = llm.generate([e.prompt for e in entries], params, use_tqdm=False)
    for output, entry in zip(outputs, entries, strict=True):
        room = 64 - len(entry.prompt)
        count = room if max_tokens is None else min(room, max_tokens)
        ids = output.outputs[0].token_ids
        assert len(ids) == count
        expected = entry.expected(count)
        assert ids[: len(expected)] == expected
        assert output.outputs[0].finish_reason == "length"


def test_bad_05_lists_of_other_lengths_are_refused(llm, control):
    for params in ([_greedy()], [_greedy()] * 3, []):
        with pytest.raises(ValueError, match="sampling_params"):
            llm.generate([CONTROL, CONTROL], params, use_tqdm=False)
    with pytest.raises(ValueError, match="priority"):
        llm.generate([CONTROL], _greedy(), use_tqdm=False, priority=[1, 2])
    with pytest.raises(ValueError, match="sampling_params"):
        llm.generate([CONTROL], "greedy", use_tqdm=False)


@pytest.mark.parametrize("bad", [["a"], [None], [1.5], [True]])
def test_bad_05_priorities_that_are_no_integers_are_refused(llm, control, bad):
    with pytest.raises(ValueError, match="priority"):
        llm.generate([CONTROL], _greedy(), use_tqdm=False, priority=bad)


@pytest.mark.parametrize("bad", [None, 3, "", b"x"])
def test_request_ids_that_are_no_names_are_refused(llm, control, bad):
    with pytest.raises(ValueError, match="request_id"):
        llm.llm_engine.add_request(bad, CONTROL, _greedy())


def test_a_live_request_id_is_refused_and_can_be_used_again_later(llm, control):
    engine = llm.llm_engine
    engine.add_request("one", CONTROL, _greedy())
    with pytest.raises(ValueError, match="one"):
        engine.add_request("one", CONTROL, _greedy())
    engine.abort_request("one")
    engine.add_request("one", CONTROL, _greedy())
    outputs = []
    while engine.has_unfinished_requests():
        outputs += engine.step()
    assert [o.request_id for o in outputs if o.finished] == ["one"]
    assert outputs[-1].outputs[0].token_ids == control[:4]


def test_text_without_a_tokenizer_is_refused(llm, control):
    with pytest.raises(ValueError, match="tokenizer"):
        llm.generate("hello", _greedy(), use_tqdm=False)
    with pytest.raises(ValueError, match="tokenizer"):
        llm.chat([{"role": "user", "content": "hi"}], _greedy(), use_tqdm=False)
    with pytest.raises(ValueError, match="stop"):
        llm.generate(CONTROL, SamplingParams(stop="x"), use_tqdm=False)


@pytest.mark.parametrize("method", ["encode", "embed", "beam_search", "score"])
def test_methods_that_are_not_built_say_so(llm, method):
    with pytest.raises(ValueError, match=method):
        getattr(llm, method)("x")
    assert not hasattr(llm, "no_such_thing")
