import dataclasses

import pytest

from jengine.outputs import CompletionOutput, Logprob, RequestOutput


def make_output(**fields):
    completion = CompletionOutput(index=0, text="a", token_ids=[5], **fields)
    return RequestOutput("7", "p", [1, 2], [completion], finished=True)


def test_fields_are_those_of_vllm():
    names = {field.name for field in dataclasses.fields(RequestOutput)}
    assert names == {
        "request_id",
        "prompt",
        "prompt_token_ids",
        "prompt_logprobs",
        "outputs",
        "finished",
        "metrics",
        "num_cached_tokens",
        "kv_transfer_params",
        "lora_request",
    }
    names = {field.name for field in dataclasses.fields(CompletionOutput)}
    assert names == {
        "index",
        "text",
        "token_ids",
        "cumulative_logprob",
        "logprobs",
        "finish_reason",
        "stop_reason",
    }
    assert Logprob(-0.5) == Logprob(-0.5, rank=None, decoded_token=None)


@pytest.mark.parametrize("reason", [None, "stop", "length", "abort"])
def test_finished_follows_the_finish_reason(reason):
    output = make_output(finish_reason=reason)
    assert output.outputs[0].finished() is (reason is not None)


def test_outputs_are_frozen_and_compare_by_value():
    assert make_output() == make_output()
    assert make_output() != make_output(stop_reason="x")
    with pytest.raises(dataclasses.FrozenInstanceError):
        make_output().finished = False
    assert make_output().outputs[0].token_ids == [5]
