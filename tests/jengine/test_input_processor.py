import pytest

from jengine import SamplingParams
from jengine.core.plan import SamplingOptions
from jengine.errors import (
    CheckpointError,
    InvalidValueError,
    PromptError,
    SamplingParamsError,
)
from jengine.input_processor import (
    EndTokens,
    InputLimits,
    InputProcessor,
    find_end_tokens,
    request_seed,
)
from jengine.prompts import ParsedPrompt
from jengine.testing import write_sentencepiece_tokenizer
from jengine.text.tokenizer import load_tokenizer

LIMITS = InputLimits(
    vocab_size=20, max_model_len=30, max_sequence_tokens=25, max_logprobs=5, seed=11
)
ANY = SamplingParams()
ENDS = EndTokens(2, frozenset({7}))


@pytest.fixture
def processor(letters):
    return InputProcessor(LIMITS, ENDS, letters)


def make(processor, num_prompt_tokens=4, **options):
    params = SamplingParams(**options)
    return processor.make_request("r", [1] * num_prompt_tokens, params)


@pytest.mark.parametrize(
    ("config", "generation", "tokenizer", "main", "others"),
    [
        ({}, {}, None, None, set()),
        ({"eos_token_id": 2}, {}, None, 2, set()),
        ({"eos_token_id": [3, 2]}, {}, None, 3, {2}),
        ({"eos_token_id": 2}, {"eos_token_id": 7}, None, 7, set()),
        ({"eos_token_id": 2}, {"eos_token_id": [7, 8, 7]}, None, 7, {8}),
        ({"eos_token_id": 2}, {"eos_token_id": None}, None, 2, set()),
        ({"eos_token_id": 2}, {"eos_token_id": []}, None, 2, set()),
        ({"eos_token_id": None}, {}, 9, 9, set()),
        ({"eos_token_id": 2}, {}, 9, 9, {2}),
        ({"eos_token_id": 2}, {"eos_token_id": [7, 9]}, 9, 9, {7}),
        ({"eos_token_id": 0}, {}, None, 0, set()),
        ({}, {"eos_token_id": 0}, None, 0, set()),
        ({"eos_token_id": 2}, {}, 0, 0, {2}),
    ],
)
def test_find_end_tokens(config, generation, tokenizer, main, others):
    found = find_end_tokens(config, generation, tokenizer)
    assert found == (main, others)
    assert found.all == others | ({main} - {None})


def test_seeds_of_requests_are_distinct_and_fixed():
    seeds = {request_seed(engine, n) for engine in range(20) for n in range(200)}
    assert len(seeds) == 20 * 200
    assert max(seeds) < 2**64
    assert sum(seed > 2**63 for seed in seeds) > 1500  # all 64 bits are used
    # Written down, because the same script must draw the same tomorrow.
    assert request_seed(0, 0) == 13913987977269637804
    assert request_seed(7, 123) == 3605168231962470297


def test_a_request_without_a_seed_draws_by_its_number(processor):
    seeds = [make(processor).options.seed for _ in range(3)]
    assert seeds == [request_seed(11, number) for number in range(3)]
    assert make(processor, seed=5).options.seed == 5
    assert make(processor).options.seed == request_seed(11, 4)
    assert make(processor, seed=0).options.seed == 0


@pytest.mark.parametrize(
    ("limits", "most"), [((30, 25), 25), ((20, 25), 20), ((25, 25), 25)]
)
def test_the_tighter_limit_counts(letters, limits, most):
    model, pool = limits
    narrow = LIMITS._replace(max_model_len=model, max_sequence_tokens=pool)
    processor = InputProcessor(narrow, ENDS, letters)
    assert processor.max_total_tokens == most
    assert make(processor, max_tokens=None).max_total_tokens == most
    longest = tuple([1] * (most - 1))
    assert processor.tokenize(ParsedPrompt(None, longest), ANY) == longest
    with pytest.raises(PromptError, match=str(most)):
        processor.tokenize(ParsedPrompt(None, (*longest, 1)), ANY)


@pytest.mark.parametrize(
    ("num_prompt_tokens", "max_tokens", "total"),
    [(4, None, 25), (4, 1, 5), (4, 21, 25), (4, 22, 25), (24, 10**9, 25), (24, 1, 25)],
)
def test_total_length(processor, num_prompt_tokens, max_tokens, total):
    request = make(processor, num_prompt_tokens, max_tokens=max_tokens)
    assert request.max_total_tokens == total


@pytest.mark.parametrize(
    ("options", "stops_from", "stop_ids"),
    [
        ({}, 4, ()),
        ({"min_tokens": 3}, 7, (2, 7)),
        ({"min_tokens": 3, "stop_token_ids": [9, 1]}, 7, (1, 2, 7, 9)),
        ({"min_tokens": 3, "stop_token_ids": [7]}, 7, (2, 7)),
        ({"min_tokens": 3, "ignore_eos": True}, 7, (2, 7)),
        ({"stop_token_ids": [9]}, 4, ()),
    ],
)
def test_min_tokens_is_counted_from_the_prompt(
    processor, options, stops_from, stop_ids
):
    made = make(processor, **options).options
    assert (made.stops_from, made.stop_ids) == (stops_from, stop_ids)


def test_end_ids_without_a_logit_are_not_masked(letters):
    processor = InputProcessor(LIMITS, EndTokens(2, frozenset({-1, 20, 999})), letters)
    assert make(processor, min_tokens=1).options.stop_ids == (2,)


@pytest.mark.parametrize("bad", ["</s>", [None], 1.5, True, {"id": 2}, [2, "3"]])
def test_end_ids_that_are_none(bad):
    for config, generation in [
        ({"eos_token_id": bad}, {}),
        ({}, {"eos_token_id": bad}),
    ]:
        with pytest.raises(CheckpointError, match="eos_token_id"):
            find_end_tokens(config, generation, None)


@pytest.mark.parametrize(
    ("options", "eos", "ending"),
    [
        ({}, 2, {2, 7}),
        ({"stop_token_ids": [9]}, 2, {2, 7, 9}),
        ({"ignore_eos": True}, None, set()),
        ({"ignore_eos": True, "stop_token_ids": [2, 9]}, None, {2, 9}),
    ],
)
def test_which_ids_end_a_request(processor, options, eos, ending):
    request = make(processor, **options)
    assert (request.eos_token_id, request.ending_ids) == (eos, ending)


def test_options_of_the_sampler(processor):
    options = {"temperature": 0.5, "top_k": 3, "top_p": 0.9, "min_p": 0.1, "seed": 1}
    made = make(processor, logprobs=2, **options).options
    assert made == SamplingOptions(
        **options, num_logprobs=2, stops_from=4, num_prompt_tokens=4
    )
    assert make(processor, temperature=1, top_k=-1).options.top_k == 0
    assert make(processor, logprobs=0).options.num_logprobs == 0
    assert make(processor).options.num_logprobs is None
    assert make(processor, logprobs=-1).options.num_logprobs == 20


def test_a_request_carries_what_it_was_asked_with(processor):
    params = SamplingParams()
    request = processor.make_request(
        "name", (3, 4), params, priority=-2, cache_salt="s"
    )
    assert (request.request_id, request.token_ids) == ("name", [3, 4])
    assert (request.priority, request.cache_salt, request.arrival) == (-2, "s", 0)
    assert processor.make_request("b", [3], params).arrival == 1


def test_text_becomes_ids_and_given_ids_win(processor):
    assert processor.tokenize(ParsedPrompt("abc", None), ANY) == (0, 1, 2)
    assert processor.tokenize(ParsedPrompt("abc", (5,)), ANY) == (5,)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (ParsedPrompt("", None), "at least one token"),
        (ParsedPrompt(None, ()), "at least one token"),
        (ParsedPrompt(None, (3, 20)), r"token id 1 of here is 20; allowed: 0 to 19"),
        (ParsedPrompt(None, (-1,)), "token id 0 of here is -1"),
        (ParsedPrompt("xyz", None), "token id 0 of here is 23"),
        (ParsedPrompt("a" * 25, None), "length of here is 25; allowed: at most 24"),
    ],
)
def test_prompts_that_cannot_be_run(processor, prompt, message):
    with pytest.raises(PromptError, match=message):
        processor.tokenize(prompt, ANY, "here")


def test_without_a_tokenizer(processor):
    bare = InputProcessor(LIMITS, ENDS, None)
    assert bare.tokenize(ParsedPrompt(None, (1,)), ANY) == (1,)
    with pytest.raises(PromptError, match="no tokenizer is loaded"):
        bare.tokenize(ParsedPrompt("abc", None), ANY)
    stops = SamplingParams(stop="x")
    processor.check_params(stops)
    with pytest.raises(SamplingParamsError, match="without a tokenizer"):
        bare.check_params(stops)


@pytest.mark.parametrize("options", [{"logprobs": 6}, {"stop_token_ids": [20]}])
def test_params_are_checked_against_the_model(processor, options):
    with pytest.raises(SamplingParamsError, match=next(iter(options))):
        processor.check_params(SamplingParams(**options))
    processor.check_params(SamplingParams(logprobs=5, stop_token_ids=[19]))


@pytest.mark.parametrize("bad", [None, 1.0, "1", True, [1]])
def test_priorities(processor, bad):
    processor.check_priority(-3)
    with pytest.raises(InvalidValueError, match="priority"):
        processor.check_priority(bad)


@pytest.mark.parametrize(
    ("kept", "most", "expected"),
    [
        (3, 16, 3),
        (24, 16, 24),
        (99, 16, None),  # more than fits is kept, and refused
        (-1, 16, 25 - 16),
        (-1, 1, 24),
        (-1, None, 24),
        (-1, 500, 1),
        (None, 1, None),
    ],
)
def test_prompts_are_truncated_from_the_left(processor, kept, most, expected):
    ids = tuple(i % 20 for i in range(40))
    params = SamplingParams(truncate_prompt_tokens=kept, max_tokens=most)
    if expected is None:
        with pytest.raises(PromptError, match="40"):
            processor.tokenize(ParsedPrompt(None, ids), params)
    else:
        found = processor.tokenize(ParsedPrompt(None, ids), params)
        assert found == ids[-expected:]


def test_one_completion_reports_on_the_prompt_and_computes_it(processor):
    params = SamplingParams(n=2, prompt_logprobs=1)
    first, second = (
        processor.make_request(str(i), [1, 2], params, index=i) for i in range(2)
    )
    assert (first.options.num_prompt_logprobs, first.reads_cache) == (1, False)
    assert (second.options.num_prompt_logprobs, second.reads_cache) == (None, True)
    anew = SamplingParams(skip_reading_prefix_cache=True)
    assert not processor.make_request("r", [1, 2], anew).reads_cache


@pytest.mark.parametrize("huge", [20, 21, 2**31, 2**64, 10**30])
def test_numbers_of_any_size_fit_into_32_bits(processor, huge):
    options = make(processor, top_k=huge, min_tokens=huge, max_tokens=None).options
    assert options.top_k == 0  # everything is kept
    assert options.stops_from == min(4 + huge, 26)  # one past the longest request
    assert make(processor, top_k=19).options.top_k == 19


@pytest.mark.parametrize("asked", [20, 21, 500, -1])
def test_no_more_alternatives_are_reported_than_there_are_ids(letters, asked):
    limits = LIMITS._replace(max_logprobs=1000)
    processor = InputProcessor(limits, ENDS, letters)
    params = SamplingParams(logprobs=asked, prompt_logprobs=asked)
    processor.check_params(params)
    options = processor.make_request("r", [1], params).options
    assert (options.num_logprobs, options.num_prompt_logprobs) == (20, 20)


def test_bad_words_that_cannot_be_encoded_are_named(processor):
    with pytest.raises(SamplingParamsError, match=r"bad_words is .*lone surrogate"):
        processor.check_params(SamplingParams(bad_words=["a", "b\ud800"]))


def test_bad_words_are_banned_behind_other_text_too(tmp_path):
    folder = write_sentencepiece_tokenizer(tmp_path)
    tokenizer = load_tokenizer(folder)
    ids = tokenizer.hf.get_vocab()
    found = InputProcessor(LIMITS, ENDS, tokenizer).split_bad_words(
        SamplingParams(bad_words=["sat"])
    )
    assert {ids["sat"], ids["▁sat"]} <= set(found.banned_token_ids)


def test_bad_words_are_encoded_once_for_all_completions(letters, monkeypatch):
    processor = InputProcessor(LIMITS, ENDS, letters)
    params = SamplingParams(bad_words=["ab", "c"], n=8)
    first = processor.split_bad_words(params)
    monkeypatch.setattr(processor, "_encode", None)
    assert processor.split_bad_words(params.clone()) is first
    assert make(processor, bad_words=["ab", "c"]).options.banned_token_ids == (2,)
