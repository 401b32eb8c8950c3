import dataclasses

import hypothesis
import pytest
from hypothesis import strategies as st

from jengine.outputs import CompletionOutput, Logprob, RequestOutput, merge_outputs


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


def piece(index, start, end, *, end_of_all, are_deltas):
    """Tokens `start` to `end` of a completion, or all up to `end`."""
    ids = list(range(0 if not are_deltas else start, end))
    return CompletionOutput(
        index,
        "".join(chr(97 + token) for token in ids),
        ids,
        cumulative_logprob=-float(end),
        logprobs=[{token: Logprob(-1.0)} for token in ids],
        finish_reason="length" if end_of_all else None,
    )


@hypothesis.given(st.data(), st.booleans())
def test_merged_outputs_hold_what_all_of_them_held(data, are_deltas):
    """However reads fall between them, a reader ends with the same."""
    num, length = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 6))
    order = data.draw(st.permutations([*range(num)] * length))
    done, outputs = [0] * num, []
    for index in order:
        done[index] += 1
        one = piece(
            index,
            done[index] - 1,
            done[index],
            end_of_all=done[index] == length,
            are_deltas=are_deltas,
        )
        is_last = done == [length] * num
        output = RequestOutput("7", "p", [1], [one], finished=is_last)
        outputs.append(output)
    cuts = data.draw(
        st.sets(st.integers(1, len(outputs) - 1) if order[1:] else st.nothing())
    )
    read = []
    for number, output in enumerate(outputs):
        if number == 0 or number in cuts:
            read.append(output)
        else:
            read[-1] = merge_outputs(read[-1], output, are_deltas=are_deltas)
    assert len(read) == len(cuts) + 1
    assert [output.finished for output in read] == [False] * len(cuts) + [True]
    ids, ends = {i: [] for i in range(num)}, {}
    for output in read:
        indices = [done.index for done in output.outputs]
        assert indices == sorted(set(indices))
        for one in output.outputs:
            assert one.text == "".join(chr(97 + token) for token in one.token_ids)
            assert [*map(list, one.logprobs)] == [[token] for token in one.token_ids]
            ids[one.index] = (
                [*ids[one.index], *one.token_ids] if are_deltas else one.token_ids
            )
            ends[one.index] = (one.finish_reason, one.cumulative_logprob)
    assert ids == {i: list(range(length)) for i in range(num)}
    assert ends == {i: ("length", -float(length)) for i in range(num)}


def test_merging_changes_neither_output():
    first, second = make_output(logprobs=[{5: Logprob(-1.0)}]), make_output(logprobs=[])
    merged = merge_outputs(first, second, are_deltas=True)
    merged.outputs[0].token_ids.append(9)
    merged.outputs[0].logprobs.clear()
    assert first == make_output(logprobs=[{5: Logprob(-1.0)}])
    assert second == make_output(logprobs=[])


@pytest.mark.parametrize("are_deltas", [True, False])
def test_merging_keeps_the_logprobs_of_the_prompt(are_deltas):
    entries = [None, {2: Logprob(-1.0)}]
    first = dataclasses.replace(make_output(), prompt_logprobs=entries)
    for one, other in ((first, make_output()), (make_output(), first)):
        merged = merge_outputs(one, other, are_deltas=are_deltas)
        assert merged.prompt_logprobs == entries
