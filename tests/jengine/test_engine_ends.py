"""The last output of a request: how it is told, and that there is one."""

import pytest

from jengine import RequestOutputKind, SamplingParams


def greedy(count=6, **options):
    return SamplingParams(temperature=0, max_tokens=count, **options)


def step_all(engine):
    """Every output, in order."""
    found = []
    while engine.has_unfinished_requests():
        found += engine.step()
    return found


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("kind", list(RequestOutputKind))
@pytest.mark.parametrize("options", [{}, {"stop_token_ids": [*range(0, 26, 3)]}])
def test_several_completions_have_one_end(make_engine, ahead, kind, options):
    """All of them end in the same step, or each in its own."""
    given = {"temperature": 1, "n": 3, "seed": 5, "max_tokens": 5} | options
    engine = make_engine(ahead=ahead)
    want = []
    for seed in (5, 6, 7):
        alone = SamplingParams(**given | {"n": 1, "seed": seed})
        engine.add_request("a", [1, 2, 3], alone)
        want.append(step_all(engine)[-1].outputs[0].token_ids)
    engine.add_request("a", [1, 2, 3], SamplingParams(**given, output_kind=kind))
    outputs = step_all(engine)
    assert [o.finished for o in outputs] == [False] * (len(outputs) - 1) + [True]
    ids = {0: [], 1: [], 2: []}
    for output in outputs:
        for done in output.outputs:
            known = ids[done.index] if kind is RequestOutputKind.DELTA else []
            ids[done.index] = known + done.token_ids
    assert [*ids.values()] == want


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("kind", list(RequestOutputKind))
def test_abort_returns_what_was_there(make_engine, expected_ids, ahead, kind):
    engine = make_engine(ahead=ahead)
    params = greedy(9, output_kind=kind, logprobs=0)
    engine.add_request("a", [1, 2, 3], params)
    outputs = [output for _ in range(5) for output in engine.step()]
    (last,) = engine.abort_request(["a", "unknown", "a"])
    assert (last.request_id, last.finished) == ("a", True)
    done = last.outputs[0]
    assert done.finish_reason == "abort"
    ids = done.token_ids
    if kind is RequestOutputKind.DELTA:
        ids = [i for o in [*outputs, last] for i in o.outputs[0].token_ids]
    assert ids == expected_ids([1, 2, 3], params)[: 4 if ahead else 5]
    assert len(done.logprobs) == len(done.token_ids)
    assert engine.abort_request("a") == []


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("kind", list(RequestOutputKind))
def test_abort_gives_out_text_that_was_held_back_for_a_stop_string(
    make_engine, expected_ids, ahead, kind
):
    want = "".join(chr(97 + i) for i in expected_ids([1, 2, 3], greedy(9)))
    engine = make_engine(ahead=ahead)
    # All that may come begins like it.
    engine.add_request("a", [1, 2, 3], greedy(9, output_kind=kind, stop=[want + "!"]))
    outputs = [output for _ in range(5) for output in engine.step()]
    (last,) = engine.abort_request("a")
    told = [*outputs, last] if kind is RequestOutputKind.DELTA else [last]
    text = "".join(output.outputs[0].text for output in told)
    num_tokens = sum(len(output.outputs[0].token_ids) for output in told)
    assert num_tokens == (4 if ahead else 5)
    assert text == want[:num_tokens]
    assert not any(output.outputs[0].text for output in outputs)


def test_abort_of_several_completions_tells_the_end_of_each_once(make_engine):
    options = {"temperature": 1, "n": 3, "seed": 5, "max_tokens": 9}
    engine = make_engine(ahead=False)
    engine.add_request("a", [1, 2, 3], SamplingParams(**options))
    stop = step_all(engine)[0].outputs[0].token_ids[0]
    kind = RequestOutputKind.DELTA
    params = SamplingParams(**options, output_kind=kind, stop_token_ids=[stop])
    engine.add_request("a", [1, 2, 3], params)
    seen = [o.outputs[0] for _ in range(3) for o in engine.step()]
    assert any(done.finish_reason for done in seen)
    (last,) = engine.abort_request("a")
    assert {done.finish_reason for done in last.outputs} == {"abort"}
    ended = [done.index for done in [*seen, *last.outputs] if done.finish_reason]
    assert sorted(ended) == [0, 1, 2]
