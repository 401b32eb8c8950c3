"""`LLM.stream` and `LLM.stream_chat`; what ends a stream is in test_offline_loop."""

import numpy as np
import pytest

from jengine import RequestOutputKind, SamplingParams
from jengine.errors import ChatTemplateError, InvalidValueError, PromptError

GREEDY = SamplingParams(temperature=0, max_tokens=3)


@pytest.fixture(scope="module")
def llm(alphabet_llm):
    return alphabet_llm


@pytest.fixture(autouse=True)
def nothing_is_left(llm, check_idle):
    yield
    check_idle(llm)


def texts(outputs):
    return [output.outputs[0].text for output in outputs]


@pytest.mark.parametrize("prompt", ["a", [97], {"prompt": "a"}, np.array([97])])
def test_a_stream_of_deltas(llm, prompt):
    outputs = list(llm.stream(prompt, GREEDY))
    assert texts(outputs) == ["b", "c", "d"]
    assert [output.finished for output in outputs] == [False, False, True]
    assert texts(llm.generate(prompt, GREEDY, use_tqdm=False)) == ["bcd"]


@pytest.mark.parametrize("kind", list(RequestOutputKind))
def test_what_a_stream_holds_is_an_argument(llm, kind):
    params = SamplingParams(temperature=0, max_tokens=3, output_kind=kind)
    assert texts(llm.stream("a", params)) == ["b", "c", "d"]
    expected = {"CUMULATIVE": ["b", "bc", "bcd"], "FINAL_ONLY": ["bcd"]}
    shown = texts(llm.stream("a", params, output_kind=kind))
    assert shown == expected.get(kind.name, ["b", "c", "d"])
    assert params.output_kind is kind


def test_a_stream_without_params_takes_those_of_the_model(llm):
    assert "".join(texts(llm.stream("a"))) == "bcdef"


def test_a_stream_of_an_answer(llm):
    messages = [{"role": "user", "content": "hi"}]
    (whole,) = llm.chat(messages, GREEDY, use_tqdm=False)
    outputs = list(llm.stream_chat(messages, GREEDY))
    assert "".join(texts(outputs)) == whole.outputs[0].text == "abc"
    assert {output.prompt for output in outputs} == {whole.prompt}
    template = "{{ messages[0].content }}{{ mood }}"
    outputs = llm.stream_chat(
        messages,
        GREEDY,
        chat_template=template,
        chat_template_kwargs={"mood": "x"},
    )
    assert "".join(texts(outputs)) == "yza"


def test_streams_and_calls_share_an_engine(llm):
    for one, other in zip(llm.stream("a"), llm.stream("k"), strict=True):
        (output,) = llm.generate("v", GREEDY, use_tqdm=False)
        assert texts([output]) == ["wxy"]
        distance = ord(other.outputs[0].text) - ord(one.outputs[0].text)
        assert distance == ord("k") - ord("a")


def test_leaving_a_stream_frees_its_blocks(llm, check_idle):
    for output in llm.stream("a", SamplingParams(temperature=0, max_tokens=99)):
        assert output.outputs[0].text == "b"
        break
    check_idle(llm)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"prompt": ""}, PromptError),
        ({"prompt": ["a", "b"]}, PromptError),
        ({"prompt": [999]}, PromptError),
        ({"sampling_params": 3}, InvalidValueError),
        ({"sampling_params": [GREEDY, GREEDY]}, InvalidValueError),
        ({"sampling_params": SamplingParams(logprobs=300)}, InvalidValueError),
        ({"output_kind": "delta"}, InvalidValueError),
        ({"priority": "high"}, InvalidValueError),
    ],
)
def test_a_stream_is_refused_at_once(llm, arguments, error):
    with pytest.raises(error):
        llm.stream(**({"prompt": "a", "sampling_params": GREEDY} | arguments))
    with pytest.raises(ChatTemplateError):
        llm.stream_chat([], GREEDY)
