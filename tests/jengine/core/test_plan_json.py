import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jengine.core.plan import (
    PromptLogprobs,
    SamplingOptions,
    ScheduledRequest,
    StepPlan,
    StepResult,
    TokenLogprobs,
)
from jengine.core.plan_json import (
    SCHEMA,
    plan_from_json,
    plan_to_json,
    result_from_json,
    result_to_json,
)

NUMBERS = st.integers(0, 2**31 - 1)
IDS = st.lists(NUMBERS, max_size=4).map(tuple)
FLOATS = st.floats(allow_nan=False)
TEXTS = st.lists(st.text(max_size=4), max_size=3).map(tuple)
OPTIONS = st.builds(
    SamplingOptions,
    temperature=FLOATS,
    top_k=NUMBERS,
    seed=st.integers(-(2**63), 2**64 - 1),
    num_logprobs=st.none() | NUMBERS,
    stop_ids=IDS,
    num_prompt_tokens=NUMBERS,
    repetition_penalty=FLOATS,
    logit_bias=st.lists(st.tuples(NUMBERS, FLOATS), max_size=3).map(tuple),
    allowed_token_ids=st.none() | IDS,
    banned_token_ids=IDS,
)
ROWS = st.builds(
    ScheduledRequest,
    st.text(),
    NUMBERS,
    NUMBERS,
    IDS,
    st.booleans(),
    IDS,
    st.booleans(),
    st.none() | OPTIONS,
    IDS,
)
PLANS = st.builds(
    StepPlan,
    NUMBERS,
    st.lists(ROWS, max_size=3).map(tuple),
    NUMBERS,
    NUMBERS,
    TEXTS,
    TEXTS,
)
LOGPROBS = st.builds(
    TokenLogprobs, IDS, st.lists(FLOATS, max_size=3).map(tuple), IDS, FLOATS
)
PROMPT_LOGPROBS = st.builds(
    PromptLogprobs, NUMBERS, st.lists(LOGPROBS, max_size=2).map(tuple)
)
RESULTS = st.builds(
    StepResult,
    NUMBERS,
    st.lists(IDS, max_size=3).map(tuple),
    st.none() | st.lists(st.none() | LOGPROBS, max_size=3).map(tuple),
    IDS,
    st.lists(st.tuples(NUMBERS, PROMPT_LOGPROBS), max_size=2).map(tuple),
)


@given(PLANS)
def test_plans_survive_a_file(plan):
    read = plan_from_json(json.loads(json.dumps(plan_to_json(plan))))
    assert read == plan
    assert hash(read) == hash(plan)
    assert all(isinstance(row, ScheduledRequest) for row in read.rows)


@given(RESULTS)
def test_results_survive_a_file(result):
    read = result_from_json(json.loads(json.dumps(result_to_json(result))))
    assert read == result
    assert hash(read) == hash(result)


@pytest.mark.parametrize("read", [plan_from_json, result_from_json])
@pytest.mark.parametrize("schema", [None, 0, SCHEMA + 1, "1"])
def test_an_unknown_schema_is_refused(read, schema):
    with pytest.raises(ValueError, match=f"schema {schema!r} is not known, only 3"):
        read({"schema": schema})


def test_the_schema_is_written_down():
    assert plan_to_json(StepPlan(0, (), 0, 0, (), ()))["schema"] == SCHEMA == 3
    assert result_to_json(StepResult(0, ()))["schema"] == SCHEMA
