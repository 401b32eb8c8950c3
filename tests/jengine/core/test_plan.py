import pytest

from jengine.core.plan import SamplingOptions, ScheduledRequest, StepPlan, StepResult


def make_row(**changes):
    fields = {
        "request_id": "a",
        "seat": 0,
        "num_computed_tokens": 4,
        "token_ids": (5, 6),
        "carries": False,
        "new_block_ids": (),
        "samples": True,
        "options": None,
    }
    return ScheduledRequest(**fields | changes)


def make_plan(*rows):
    return StepPlan(0, rows, 0, sum(r.num_tokens for r in rows), (), ())


def test_a_carried_token_counts():
    assert make_row().num_tokens == 2
    assert make_row(token_ids=(), carries=True).num_tokens == 1


def test_options_are_greedy_by_default():
    options = SamplingOptions()
    assert options[:8] == (0.0, 0, 1.0, 0.0, 0, None, 0, ())
    assert not options.needs_history
    assert not options.biases_logits


@pytest.mark.parametrize(
    ("changes", "needs"),
    [
        ({"presence_penalty": 1.0}, True),
        ({"frequency_penalty": -1.0}, True),
        ({"repetition_penalty": 1.1}, True),
        ({"num_prompt_logprobs": 0}, True),
        ({"logit_bias": ((1, 2.0),)}, False),
        ({"num_logprobs": 3}, False),
    ],
    ids=str,
)
def test_history_goes_to_those_who_need_it(changes, needs):
    assert SamplingOptions(**changes).needs_history == needs


def test_plans_are_values():
    one = make_plan(make_row(options=SamplingOptions(seed=3)))
    other = make_plan(make_row(options=SamplingOptions(seed=3)))
    assert one == other
    assert hash(one) == hash(other)
    assert {one: "seen"}[other] == "seen"
    assert one != make_plan(make_row(options=SamplingOptions(seed=4)))


def test_plans_and_results_cannot_be_changed():
    with pytest.raises(AttributeError):
        make_plan().step = 3
    with pytest.raises(AttributeError):
        StepResult(0, ()).sampled = ((1,),)
    assert hash(StepResult(0, ((1,),))) == hash(StepResult(0, ((1,),)))
