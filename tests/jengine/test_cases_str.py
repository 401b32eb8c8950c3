"""Structured output on models that would rather say something else."""

import json
import re

import numpy as np
import pytest

from jengine import SamplingParams, StructuredOutputsParams
from jengine.testing import write_byte_tokenizer, write_markov_checkpoint

VOCAB = 320
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "yy"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def make_lover(tmp_path_factory, make_llm):
    """Makes an engine whose model always likes the same characters best.

    Its logits fall from the first character of the text to the last, then comes
    everything else at random.
    """
    import transformers

    def make(loved, *, seed=0, **options):
        folder = tmp_path_factory.mktemp("lover")
        write_byte_tokenizer(folder)
        hf = transformers.AutoTokenizer.from_pretrained(folder)
        row = np.random.default_rng(seed).uniform(0, 1, VOCAB).astype(np.float32)
        for rank, token in enumerate(hf.encode(loved, add_special_tokens=False)):
            row[token] = 40 - rank
        table = dict.fromkeys(range(VOCAB), row)
        write_markov_checkpoint(
            folder, table, vocab_size=VOCAB, eos_token_id=hf.eos_token_id
        )
        return make_llm(folder, skip_tokenizer_init=False, **options)

    return make


@pytest.fixture(scope="module")
def spaces(make_lover):
    """Likes white space above all, and digits next."""
    return make_lover(" \n\t7")


def _ask(llm, *, prompt="^", **options):
    grammar = options.pop("grammar", None)
    if grammar is not None:
        options["structured_outputs"] = StructuredOutputsParams(**grammar)
    params = SamplingParams(**({"temperature": 0, "max_tokens": 200} | options))
    (output,) = llm.generate(prompt, params, use_tqdm=False)
    return output.outputs[0]


def test_str_05_white_space_does_not_go_on_for_ever(spaces, check_idle):
    done = _ask(spaces, grammar={"json": SCHEMA})
    assert "7" in done.text  # an integer has no end, white space has one
    assert re.search(r"\s{18}", done.text) is None
    digits = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 99}}}
    closed = digits | {"required": ["a"], "additionalProperties": False}
    done = _ask(spaces, grammar={"json": closed})
    assert done.finish_reason == "stop"
    assert set(json.loads(done.text)) == {"a"}
    check_idle(spaces)


def test_str_05_a_complete_text_ends_at_once(make_lover, check_idle):
    llm = make_lover("abc")
    for options in (
        {},
        {"ignore_eos": True},
        {"min_tokens": 50},
        {"ignore_eos": True, "min_tokens": 50},
    ):
        done = _ask(llm, grammar={"regex": "[0-9]{5}"}, **options)
        assert re.fullmatch("[0-9]{5}", done.text), options
        assert done.finish_reason == "stop"
        assert done.stop_reason is None
    done = _ask(llm, grammar={"json": SCHEMA}, max_tokens=3)
    assert (done.finish_reason, len(done.token_ids)) == ("length", 3)
    done = _ask(llm, grammar={"regex": "ab*cd"}, stop=["b"])
    assert (done.finish_reason, done.stop_reason, done.text) == ("stop", "b", "a")
    check_idle(llm)


NESTED = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}},
        "required": ["a"],
        "additionalProperties": False,
    },
    "minItems": 1,
    "maxItems": 1,
}


@pytest.mark.parametrize("loved", [" ", "\n", "\t ", "\n\t"], ids=repr)
def test_str_05_lovers_of_white_space_get_to_the_end(make_lover, loved, check_idle):
    llm = make_lover(loved)
    done = _ask(llm, grammar={"json": NESTED})
    assert done.finish_reason == "stop"
    assert len(json.loads(done.text)) == 1
    tight = _ask(llm, grammar={"json": NESTED, "disable_any_whitespace": True})
    assert re.search(r"\s", tight.text) is None
    assert len(json.loads(tight.text)) == 1
    tag = {
        "structures": [{"begin": "<f>", "schema": NESTED, "end": "</f>"}],
        "triggers": ["<"],
    }
    bias = {ord("<"): 100.0}  # a tag is what it likes best
    done = _ask(llm, grammar={"structural_tag": tag}, logit_bias=bias, stop=["</f>"])
    assert done.stop_reason == "</f>"
    assert len(json.loads(done.text.removeprefix("<f>"))) == 1
    check_idle(llm)


def test_str_05_an_end_waits_for_the_grammar_and_for_min_tokens(make_lover):
    llm = make_lover("7")
    eos = llm.get_tokenizer().eos_token_id
    eager = {"logit_bias": {eos: 100.0}}
    assert _ask(llm, grammar={"regex": "[0-9]+"}, **eager).text == "7"
    assert _ask(llm, grammar={"regex": "[0-9]*"}, **eager).text == ""
    done = _ask(llm, grammar={"regex": "[0-9]+"}, min_tokens=5, **eager)
    assert (done.text, done.finish_reason) == ("77777", "stop")
    done = _ask(llm, grammar={"regex": "[0-9]+"}, max_tokens=9)
    assert (done.text, done.finish_reason) == ("7" * 9, "length")
    done = _ask(llm, grammar={"json": SCHEMA}, max_tokens=1, **eager)
    assert (done.text, done.finish_reason) == ("{", "length")


def test_str_05_complete_with_the_last_allowed_token_is_complete(make_lover):
    done = _ask(make_lover("7"), grammar={"regex": "7{3}"}, max_tokens=3)
    assert (done.text, done.finish_reason) == ("777", "stop")


def test_str_05_a_stop_string_inside_of_json_wins(make_lover):
    llm = make_lover("7")
    for include, end in ((False, ""), (True, '"b"')):
        done = _ask(
            llm,
            grammar={"json": SCHEMA},
            stop=['"b"'],
            include_stop_str_in_output=include,
            logit_bias={ord(","): 100.0},  # one digit is enough
        )
        assert re.fullmatch(r'\{\s*"a"\s*:\s*7\s*,\s*' + end, done.text)
        assert (done.finish_reason, done.stop_reason) == ("stop", '"b"')


@pytest.mark.parametrize(
    "choice", [["yes", "no"], ["猫", "犬"], ["é", "e"], ["👍", "👎"], ["a", "ab"]]
)
def test_str_03_choices_are_exact_whatever_the_model_likes(make_lover, choice):
    for loved in choice:
        llm = make_lover(loved[::-1] + "!")
        done = _ask(llm, grammar={"choice": choice})
        assert done.text in choice
        assert done.finish_reason == "stop"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"async_scheduling": False},
        {"max_num_batched_tokens": 8},
        {"num_gpu_blocks_override": 9, "block_size": 8},
    ],
    ids=["plain", "sync", "chunked", "preempted"],
)
def test_str_01_masks_reach_their_own_rows_only(make_lover, check_idle, options):
    llm = make_lover("zq", **options)
    grammars = [
        {"regex": "[0-9]{5}"},
        {"choice": ["yes", "no"]},
        {"json": SCHEMA},
        None,
        {"grammar": 'start: "a" start | "b"'},
        {"json_object": True},
    ]
    params = [
        SamplingParams(
            temperature=0 if grammar is None else number % 2,
            seed=number,
            max_tokens=24 + number,
            structured_outputs=grammar and StructuredOutputsParams(**grammar),
            logprobs=2 if number % 3 == 0 else None,
            ignore_eos=grammar is None,
        )
        for number, grammar in enumerate(grammars * 2)
    ]
    prompts = ["^" * (1 + 3 * number) for number in range(len(params))]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    for number, (output, grammar) in enumerate(zip(outputs, grammars * 2, strict=True)):
        done = output.outputs[0]
        alone = llm.generate(prompts[number], params[number], use_tqdm=False)[0]
        assert done.token_ids == alone.outputs[0].token_ids
        if done.finish_reason == "stop":
            _check_text(done.text, grammar)
    assert outputs[3].outputs[0].text == "z" * 27  # greedy rows without a grammar
    assert outputs[0].outputs[0].finish_reason == "stop"
    if "num_gpu_blocks_override" in options:
        assert llm.stats.num_preemptions > 0
    check_idle(llm)


def test_str_01_rows_that_come_and_go(make_lover, check_idle):
    llm = make_lover("zq")
    grammars = [{"regex": "[0-9]{2,9}"}, None, {"choice": ["yes", "no"]}, None]
    params = [
        SamplingParams(
            temperature=0 if grammar is None else 1,
            seed=number,
            max_tokens=3 + 5 * (number % 3),
            structured_outputs=grammar and StructuredOutputsParams(**grammar),
            ignore_eos=grammar is None,
        )
        for number, grammar in enumerate(grammars * 4)
    ]
    engine, outputs = llm.llm_engine, {}
    for number, one in enumerate(params):  # one joins in each step, some are aborted
        engine.add_request(str(number), "^" * (1 + number), one)
        if number % 5 == 4:
            engine.abort_request(str(number - 1))
        outputs |= {o.request_id: o.outputs[0] for o in engine.step() if o.finished}
    while engine.has_unfinished_requests():
        outputs |= {o.request_id: o.outputs[0] for o in engine.step() if o.finished}
    ended = {i: done for i, done in outputs.items() if done.finish_reason != "abort"}
    assert len(ended) >= len(params) - 3
    for number, done in ended.items():
        i = int(number)
        alone = llm.generate("^" * (1 + i), params[i], use_tqdm=False)[0].outputs[0]
        assert (done.token_ids, done.text) == (alone.token_ids, alone.text)
        if params[i].structured_outputs is None:
            assert set(done.text) == {"z"}
    check_idle(llm)


def _check_text(text, grammar):
    kind, value = next(iter(grammar.items()))
    if kind == "regex":
        assert re.fullmatch(value, text)
    elif kind == "choice":
        assert text in value
    elif kind == "grammar":
        assert re.fullmatch("a*b", text)
    else:
        assert isinstance(json.loads(text), dict)


BAD = [
    {"regex": "[a-"},
    {"regex": "(?P<x"},
    {"json": {"type": "foo"}},
    {"json": {"$ref": "#/nope"}},
    {"json": {"type": "array", "uniqueItems": True}},
    {"json": {"not": {"type": "string"}}},
    {"grammar": "start: nowhere"},
    {"structural_tag": {"structures": []}},
]


@pytest.mark.parametrize("grammar", BAD, ids=str)
def test_str_06_what_cannot_be_compiled_costs_only_itself(spaces, check_idle, grammar):
    kind = next(iter(grammar))
    params = SamplingParams(structured_outputs=StructuredOutputsParams(**grammar))
    for _ in range(2):  # the second time it is as wrong as the first
        with pytest.raises(ValueError, match=rf"structured_outputs\.{kind} is"):
            spaces.llm_engine.add_request("bad", "^", params)
        with pytest.raises(ValueError, match=rf"structured_outputs\.{kind} is"):
            spaces.generate(["^", "^"], [SamplingParams(), params], use_tqdm=False)
    assert _ask(spaces, grammar={"regex": "[0-9]{5}"}).text == "77777"
    check_idle(spaces)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"json": SCHEMA, "regex": "a"},
        {"regex": ""},
        {"regex": "a\0b"},
        {"choice": []},
        {"choice": [1]},
        {"choice": [""]},
        {"choice": "yes"},
        {"json": "{"},
        {"json": 3},
        {"json_object": False},
        {"grammar": " "},
        {"regex": "a", "disable_any_whitespace": 1},
    ],
    ids=str,
)
def test_str_06_constraints_that_make_no_sense(options):
    with pytest.raises(ValueError, match="structured_outputs"):
        StructuredOutputsParams(**options)


def test_str_03_children_have_states_of_their_own(spaces):
    params = SamplingParams(
        n=4,
        seed=1,
        temperature=2,
        max_tokens=40,
        structured_outputs=StructuredOutputsParams(regex="[a-z]{3}[0-9]{2,6}"),
    )
    (output,) = spaces.generate("^", params, use_tqdm=False)
    texts = [done.text for done in output.outputs]
    assert all(re.fullmatch("[a-z]{3}[0-9]{2,6}", text) for text in texts)
    assert len(set(texts)) == 4


def test_stop_ids_are_gated_by_the_grammar(make_lover):
    llm = make_lover("9a")
    token = llm.get_tokenizer().encode("9", add_special_tokens=False)[0]
    done = _ask(llm, grammar={"regex": "a{3}b*"}, stop_token_ids=[token])
    assert (done.text, done.stop_reason) == ("aaa", token)


def test_the_older_name_is_the_same():
    grammar = StructuredOutputsParams(choice=["a"])
    older = SamplingParams(guided_decoding=grammar)
    assert older == SamplingParams(structured_outputs=grammar)
    with pytest.raises(ValueError, match="guided_decoding"):
        SamplingParams(guided_decoding=grammar, structured_outputs=grammar)


def test_smp_06_bad_words(make_lover, check_idle):
    llm = make_lover("abcd")

    def say(**options):
        return _ask(llm, max_tokens=4, ignore_eos=True, **options).text

    assert say() == "aaaa"
    assert say(bad_words=["a"]) == "bbbb"
    assert say(bad_words=[" a"]) == "bbbb"  # with and without the space
    assert say(bad_words=[" "]) == "aaaa"
    assert say(bad_words=["aa"]) == "abab"  # only what would complete the word
    assert say(bad_words=["aa", "ab", "ba"]) == "acac"
    assert say(bad_words=["aaa"]) == "aaba"
    params = [
        SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, bad_words=words)
        for words in (["aa"], [], ["a"])
    ]
    outputs = llm.generate(["^", "a", "^a"], params, use_tqdm=False)
    texts = [output.outputs[0].text for output in outputs]
    assert texts == ["abab", "aaaa", "bbbb"]  # and the prompt does not count
    for words in ([""], ["a", ""], [3], "a"):
        with pytest.raises(ValueError, match="bad_words"):
            SamplingParams(bad_words=words)
    check_idle(llm)
