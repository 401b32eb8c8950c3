"""vLLM's script surface, on an engine with text and on one that uses its history."""

import numpy as np
import pytest

from jengine import LLM, RequestOutputKind, SamplingParams
from jengine.errors import (
    ChatTemplateError,
    ConfigError,
    InvalidValueError,
    PromptError,
    UnsupportedError,
)

ALPHABET = [*range(97, 123)]
GREEDY = SamplingParams(temperature=0, max_tokens=3)


@pytest.fixture(scope="module")
def llm(alphabet_llm):
    return alphabet_llm


@pytest.fixture(autouse=True)
def nothing_is_left(request, check_idle):
    yield
    if "llm" in request.fixturenames:
        check_idle(request.getfixturevalue("llm"))


def texts(outputs):
    return [output.outputs[0].text for output in outputs]


@pytest.mark.parametrize(
    ("prompts", "expected", "shown"),
    [
        ("a", ["bcd"], ["a"]),
        (["a"], ["bcd"], ["a"]),
        (["c", "a"], ["def", "bcd"], ["c", "a"]),
        (("c", "a"), ["def", "bcd"], ["c", "a"]),
        ([99], ["def"], [None]),
        ([97, 99], ["def"], [None]),
        ([[99], [97]], ["def", "bcd"], [None, None]),
        ([[99], (97,)], ["def", "bcd"], [None, None]),
        (np.array([97, 99]), ["def"], [None]),
        ([np.array([99]), np.array([97])], ["def", "bcd"], [None, None]),
        ({"prompt": "c"}, ["def"], ["c"]),
        ({"prompt_token_ids": [99]}, ["def"], [None]),
        (
            {"prompt": "what it says", "prompt_token_ids": [99]},
            ["def"],
            ["what it says"],
        ),
        (
            ["a", {"prompt_token_ids": [99]}, [100], {"prompt": "e"}],
            ["bcd", "def", "efg", "fgh"],
            ["a", None, None, "e"],
        ),
    ],
)
def test_prompts_in_every_form(llm, prompts, expected, shown):
    outputs = llm.generate(prompts, GREEDY, use_tqdm=False)
    assert texts(outputs) == expected
    assert [output.prompt for output in outputs] == shown
    for output in outputs:
        assert output.finished
        assert output.outputs[0].finish_reason == "length"
        assert output.outputs[0].index == 0
        if output.prompt is not None and len(output.prompt) == 1:
            assert output.prompt_token_ids == [ord(output.prompt)]


def test_an_array_of_several_prompts_is_no_list_of_prompts(llm):
    with pytest.raises(PromptError, match="an integer"):
        llm.generate(np.array([[99], [97]]), GREEDY, use_tqdm=False)


def test_results_come_in_the_order_of_the_prompts(llm):
    prompts = [chr(letter) for letter in [*ALPHABET, *ALPHABET[::-1]]]
    params = [SamplingParams(temperature=0, max_tokens=1 + i % 7) for i in range(52)]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    assert [output.prompt for output in outputs] == prompts
    assert [len(o.outputs[0].token_ids) for o in outputs] == [
        1 + i % 7 for i in range(52)
    ]
    assert len({output.request_id for output in outputs}) == 52


def test_each_prompt_has_its_own_params(llm):
    params = (
        SamplingParams(temperature=0, max_tokens=2),
        SamplingParams(temperature=0, max_tokens=9, stop="f"),
        SamplingParams(temperature=0, max_tokens=1, logprobs=1),
    )
    outputs = llm.generate(["a", "b", "c"], params, use_tqdm=False)
    assert texts(outputs) == ["bc", "cde", "d"]
    assert [o.outputs[0].stop_reason for o in outputs] == [None, "f", None]
    assert [o.outputs[0].logprobs is None for o in outputs] == [True, True, False]
    generator = (one for one in params)
    again = llm.generate(["a", "b", "c"], generator, use_tqdm=False)
    assert texts(again) == texts(outputs)


def test_without_params_the_model_decides(llm):
    (output,) = llm.generate("a", use_tqdm=False)
    assert texts([output]) == ["bcdef"]
    default = llm.get_default_sampling_params()
    assert default == SamplingParams(temperature=0, max_tokens=5)
    assert texts(llm.chat([{"role": "user", "content": "a"}], use_tqdm=False)) == [
        "abcde"
    ]


@pytest.mark.parametrize("kind", list(RequestOutputKind))
def test_the_callers_params_stay_as_they_are(llm, kind):
    params = SamplingParams(temperature=0, max_tokens=3, output_kind=kind)
    before = repr(params)
    (output,) = llm.generate("a", params, use_tqdm=False)
    assert texts([output]) == ["bcd"]  # the whole text, whatever kind was asked
    assert repr(params) == before
    assert params.output_kind is kind


@pytest.mark.parametrize("use_tqdm", [True, False])
def test_progress_on_standard_error(llm, capsys, use_tqdm):
    llm.generate(["a", "b"], GREEDY, use_tqdm=use_tqdm)
    out, err = capsys.readouterr()
    assert out == ""
    assert ("Processed prompts" in err and "2/2" in err) is use_tqdm
    assert (err == "") is not use_tqdm


def test_chat_of_one_and_of_several_conversations(llm):
    system = {"role": "system", "content": "x"}
    one = [system, {"role": "user", "content": "hi"}]
    (output,) = llm.chat(one, GREEDY, use_tqdm=False)
    want = "<bos>system: x<eos>\nuser: hi<eos>\nassistant:"
    assert output.prompt == want
    hf = llm.get_tokenizer()
    assert output.prompt_token_ids == hf.encode(want, add_special_tokens=False)
    assert output.prompt_token_ids.count(256) == 1  # no second BOS
    assert texts([output]) == ["abc"]
    params = [GREEDY, SamplingParams(temperature=0, max_tokens=1)]
    several = llm.chat([one, [system]], params, use_tqdm=False)
    assert [o.prompt for o in several] == [want, "<bos>system: x<eos>\nassistant:"]
    assert texts(several) == ["abc", "a"]
    assert llm.chat([[system]], GREEDY, use_tqdm=False)[0].prompt == several[1].prompt


def test_chat_options(llm):
    user = {"role": "user", "content": "a"}
    open_turn = [user, {"role": "assistant", "content": "abc"}]
    (output,) = llm.chat(
        open_turn,
        GREEDY,
        use_tqdm=False,
        add_generation_prompt=False,
        continue_final_message=True,
    )
    assert output.prompt.endswith("assistant: abc")
    assert texts([output]) == ["def"]
    (output,) = llm.chat(
        [user],
        GREEDY,
        use_tqdm=False,
        chat_template="{{ messages[0].content }}{{ mood }}",
        chat_template_kwargs={"mood": "z"},
    )
    assert (output.prompt, texts([output])) == ("az", ["abc"])
    (output,) = llm.chat(
        [user],
        GREEDY,
        False,
        None,
        None,
        "{{ messages[0].content }}{% if tools %}y{% endif %}",
        tools=[{"type": "function", "function": {"name": "f"}}],
    )
    assert (output.prompt, texts([output])) == ("ay", ["zab"])


@pytest.mark.parametrize("messages", [[], [{}], "hi", None, [{"role": "user"}], [[]]])
def test_conversations_that_make_no_sense(llm, messages):
    with pytest.raises(ChatTemplateError):
        llm.chat(messages, GREEDY, use_tqdm=False)


def test_a_chat_template_of_the_engine(tmp_path, llm, make_llm, monkeypatch):
    file = tmp_path / "template.jinja"
    file.write_text("{{ messages[0].content }}b")
    options = {"skip_tokenizer_init": False, "chat_template": str(file)}
    own = make_llm(llm.config.asked.model, **options)
    monkeypatch.setattr(own, "_run", lambda prompts, *_: prompts)  # what would run
    user = [{"role": "user", "content": "a"}]
    assert own.chat(user)[0].text == "ab"
    assert own.chat(user, chat_template="{{ messages[0].content }}c")[0].text == "ac"


def test_the_tokenizer_is_the_hugging_face_one(llm, f2_llm):
    assert llm.get_tokenizer().decode([97, 98]) == "ab"
    assert llm.get_tokenizer() is llm.llm_engine.tokenizer.hf
    assert f2_llm.get_tokenizer() is None
    assert f2_llm.get_default_sampling_params() == SamplingParams()


@pytest.fixture(scope="module")
def f2_llm(f2_dir, make_llm):
    """Runs one request at a time, the most urgent first."""
    return make_llm(
        f2_dir,
        max_num_seqs=1,
        max_num_batched_tokens=16,
        scheduling_policy="priority",
    )


def test_the_prefix_cache_can_be_reset(f2_llm, f2_greedy):
    entry, cached = f2_greedy[39], []
    for _ in range(2):
        (output,) = f2_llm.generate(entry.prompt, GREEDY, use_tqdm=False)
        cached.append(output.num_cached_tokens)
    assert f2_llm.reset_prefix_cache() is True
    (output,) = f2_llm.generate(entry.prompt, GREEDY, use_tqdm=False)
    assert [*cached, output.num_cached_tokens] == [0, 32, 0]
    f2_llm.llm_engine.add_request("running", entry.prompt, GREEDY)
    f2_llm.llm_engine.step()
    assert f2_llm.reset_prefix_cache() is False
    f2_llm.llm_engine.abort_request("running")


@pytest.mark.parametrize(
    ("priority", "cached"), [([2, 1, 0], [16, 32, 0]), ([-1, 3, 9], [0, 16, 32])]
)
def test_priorities_decide_the_order(f2_llm, priority, cached):
    # Each is the start of the next, so the cache shows who came before whom.
    prompts = [[5] * count for count in (17, 33, 49)]
    assert f2_llm.reset_prefix_cache()
    params = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)
    outputs = f2_llm.generate(prompts, params, use_tqdm=False, priority=priority)
    assert [o.prompt_token_ids for o in outputs] == prompts
    assert [o.num_cached_tokens for o in outputs] == cached


@pytest.mark.parametrize(
    "priority", [7, np.int64(7), [7, np.int64(7)], np.array([7, 7])]
)
def test_priorities_are_integers_of_any_kind(f2_llm, monkeypatch, priority):
    asked = []
    monkeypatch.setattr(f2_llm._loop, "run", lambda requests, _: asked.extend(requests))
    f2_llm.generate([[5], [6]], GREEDY, use_tqdm=False, priority=priority)
    assert [one.priority for one in asked] == [7, 7]
    assert {type(one.priority) for one in asked} == {int}


@pytest.mark.parametrize("ahead_of_counter", [None, 0, 1, 2, 3])
def test_a_foreign_request_survives_generate(llm, ahead_of_counter):
    name = "mine"
    if ahead_of_counter is not None:  # an id that `generate` would take next
        (output,) = llm.generate("a", GREEDY, use_tqdm=False)
        name = str(int(output.request_id) + 1 + ahead_of_counter)
    kind = RequestOutputKind.DELTA
    params = SamplingParams(temperature=0, max_tokens=12, output_kind=kind)
    llm.llm_engine.add_request(name, "a", params)
    for count in (4, 20):  # the foreign one ends in the second call
        own = SamplingParams(temperature=0, max_tokens=count)
        outputs = llm.generate(["c", "d"], own, use_tqdm=False)
        alphabet = "abcdefghijklmnopqrstuvwxyz" * 2
        assert texts(outputs) == [alphabet[3 : 3 + count], alphabet[4 : 4 + count]]
    shown, finished = "", 0
    while llm.llm_engine.has_unfinished_requests():
        for output in llm.llm_engine.step():
            assert output.request_id == name
            shown += output.outputs[0].text
            finished += output.finished
    assert (shown, finished) == ("bcdefghijklm", 1)


def test_a_foreign_request_survives_a_failing_generate(llm):
    class Broken:
        def __init__(self, **_):
            pass

        def update(self, _):
            raise RuntimeError("no terminal")

        def close(self):
            pass

    for count in (2, 8):  # it ends before and after the call breaks off
        params = SamplingParams(temperature=0, max_tokens=count)
        llm.llm_engine.add_request("foreign", "a", params)
        with pytest.raises(RuntimeError, match="no terminal"):
            llm.generate(["c", "d"], GREEDY, use_tqdm=Broken)
        found = []
        while llm.llm_engine.has_unfinished_requests():
            found += llm.llm_engine.step()
        assert {output.request_id for output in found} == {"foreign"}
        assert found[-1].outputs[0].text == "bcdefghi"[:count]


def test_no_prompts(llm):
    assert llm.generate([], GREEDY, use_tqdm=False) == []
    assert llm.generate([], use_tqdm=False) == []
    assert llm.generate([], [], use_tqdm=False) == []


@pytest.mark.parametrize("call", ["generate", "chat"])
def test_lora_is_refused(llm, call):
    prompt = "a" if call == "generate" else [{"role": "user", "content": "a"}]
    with pytest.raises(UnsupportedError, match="lora_request"):
        getattr(llm, call)(prompt, GREEDY, use_tqdm=False, lora_request=object())


@pytest.mark.parametrize(
    "arguments",
    [
        {"sampling_params": [GREEDY]},
        {"sampling_params": {"temperature": 0}},
        {"sampling_params": [GREEDY, None]},
        {"sampling_params": 3},
        {"priority": [1]},
        {"priority": "ab"},
        {"priority": 1.5},
        {"priority": True},
        {"priority": [0, np.True_]},
        {"priority": [0, False]},
        {"priority": np.float64(1)},
    ],
)
def test_arguments_that_do_not_fit_the_prompts(llm, arguments):
    with pytest.raises(InvalidValueError, match=next(iter(arguments))):
        llm.generate(["a", "b"], use_tqdm=False, **arguments)


def test_ids_in_an_argument_of_their_own_are_refused_with_the_way_out(llm):
    for prompts in ([], [None]):
        with pytest.raises(
            UnsupportedError, match=r'prompts=\[\{"prompt_token_ids": id'
        ):
            llm.generate(*prompts, prompt_token_ids=[[97]], use_tqdm=False)
    with pytest.raises(PromptError, match="prompt is None; allowed: text, a list of"):
        llm.generate()


@pytest.mark.parametrize("options", [{"modle": "x"}, {"block_size": 0}, {"seed": "x"}])
def test_options_are_checked_before_anything_is_read(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        LLM("/does/not/exist", **options)
