import pytest

from jengine import LLM, AsyncLLM, LLMEngine
from jengine.call_arguments import refuse_unbuilt
from jengine.errors import InvalidValueError, UnsupportedError

IDS = {"prompt_token_ids": [1, 2]}


def method_of(owner, name):
    return getattr(owner.__new__(owner), name)  # no model is needed to be told


generate = method_of(LLM, "generate")
add_request = method_of(LLMEngine, "add_request")


@pytest.mark.parametrize(
    ("method", "instead"),
    [
        (generate, 'pass prompts=[{"prompt_token_ids": ids}, ...]'),
        (method_of(AsyncLLM, "generate"), 'pass prompt={"prompt_token_ids": ids}'),
        (add_request, 'pass prompt={"prompt_token_ids": ids}'),
    ],
)
def test_ids_in_an_argument_of_their_own(method, instead):
    with pytest.raises(UnsupportedError) as caught:
        refuse_unbuilt(method, IDS)
    start = f"{method.__name__} has no argument prompt_token_ids, which is [1, 2]; "
    assert str(caught.value) == start + instead


@pytest.mark.parametrize(
    ("method", "given", "instead"),
    [
        (generate, {"max_tokens": 8}, "sampling_params=SamplingParams(max_tokens=8)"),
        (add_request, {"seed": 0}, "params=SamplingParams(seed=0)"),
        (generate, {"inputs": "a"}, "pass prompts=..."),
        (
            generate,
            {"guided_options_request": {"choice": ["a"]}},
            "SamplingParams(structured_outputs=StructuredOutputsParams(...))",
        ),
    ],
)
def test_what_goes_elsewhere(method, given, instead):
    with pytest.raises(UnsupportedError) as caught:
        refuse_unbuilt(method, given)
    assert instead in str(caught.value)


@pytest.mark.parametrize("name", ["lora_request", "mm_processor_kwargs", "kv_hints"])
def test_what_is_not_built(name):
    with pytest.raises(UnsupportedError, match=f"{name}='x' is not supported; leave"):
        refuse_unbuilt(generate, {name: "x"})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sampling_parms", "Did you mean sampling_params?"),
        ("prompt", "Did you mean prompts?"),
        ("colour", "which are prompts, sampling_params, use_tqdm, priority, "),
    ],
)
def test_what_nobody_knows(name, words):
    with pytest.raises(InvalidValueError, match=f"^{name} is 3; allowed:") as caught:
        refuse_unbuilt(generate, {name: 3})
    assert words in str(caught.value)
    assert "unbuilt" not in str(caught.value)


def test_what_asks_for_nothing():
    refuse_unbuilt(generate, dict.fromkeys([*IDS, "lora_request", "colour"]))
