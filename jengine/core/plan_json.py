"""Plans and results as plain JSON values, so that a run can be kept and replayed.

The schema number changes whenever a field is added, removed or reinterpreted;
a reader refuses numbers that it does not know.
"""

from typing import Any

from jengine.core.plan import (
    PromptLogprobs,
    SamplingOptions,
    ScheduledRequest,
    StepPlan,
    StepResult,
    TokenLogprobs,
)

SCHEMA = 3


def plan_to_json(plan: StepPlan) -> dict[str, Any]:
    """Turn a plan into dicts, lists, strings and numbers."""
    rows = [
        row._asdict() | {"options": row.options and row.options._asdict()}
        for row in plan.rows
    ]
    return {"schema": SCHEMA, **plan._asdict(), "rows": rows}


def plan_from_json(value: dict[str, Any]) -> StepPlan:
    """Rebuild a plan from `plan_to_json`'s value.

    Raises:
      ValueError: the value was written under another schema number.
    """
    fields = _checked(value)
    fields["rows"] = tuple(_row(row) for row in fields["rows"])
    for name in ("finished_ids", "preempted_ids"):
        fields[name] = tuple(fields[name])
    return StepPlan(**fields)


def result_to_json(result: StepResult) -> dict[str, Any]:
    """Turn a result into dicts, lists, strings and numbers."""
    logprobs = result.logprobs and [row and row._asdict() for row in result.logprobs]
    prompts = [
        {"row": row, "start": found.start, "entries": [e._asdict() for e in found[1]]}
        for row, found in result.prompt_logprobs
    ]
    lists = {"logprobs": logprobs, "prompt_logprobs": prompts}
    return {"schema": SCHEMA, **result._asdict(), **lists}


def result_from_json(value: dict[str, Any]) -> StepResult:
    """Rebuild a result from `result_to_json`'s value.

    Raises:
      ValueError: the value was written under another schema number.
    """
    fields = _checked(value)
    if fields["logprobs"] is not None:
        fields["logprobs"] = tuple(row and _logprobs(row) for row in fields["logprobs"])
    return StepResult(
        step=fields["step"],
        sampled=tuple(tuple(ids) for ids in fields["sampled"]),
        logprobs=fields["logprobs"],
        failed_rows=tuple(fields["failed_rows"]),
        prompt_logprobs=tuple(map(_prompt_logprobs, fields["prompt_logprobs"])),
    )


def _checked(value: dict[str, Any]) -> dict[str, Any]:
    found = value.get("schema")
    if found != SCHEMA:
        raise ValueError(
            f"schema {found!r} is not known, only {SCHEMA}; "
            "read the record with the version that wrote it"
        )
    return {name: field for name, field in value.items() if name != "schema"}


def _row(value: dict[str, Any]) -> ScheduledRequest:
    fields = dict(value)
    for name in ("token_ids", "new_block_ids", "history"):
        fields[name] = tuple(fields[name])
    if fields["options"] is not None:
        fields["options"] = _options(fields["options"])
    return ScheduledRequest(**fields)


def _options(value: dict[str, Any]) -> SamplingOptions:
    fields = dict(value)
    for name in (
        "stop_ids",
        "allowed_token_ids",
        "banned_token_ids",
        "logprob_token_ids",
    ):
        fields[name] = fields[name] if fields[name] is None else tuple(fields[name])
    fields["logit_bias"] = tuple(tuple(pair) for pair in fields["logit_bias"])
    return SamplingOptions(**fields)


def _prompt_logprobs(value: dict[str, Any]) -> tuple[int, PromptLogprobs]:
    entries = tuple(_logprobs(entry) for entry in value["entries"])
    return value["row"], PromptLogprobs(value["start"], entries)


def _logprobs(value: dict[str, Any]) -> TokenLogprobs:
    fields: dict[str, Any] = dict(value)
    for name in ("token_ids", "logprobs", "ranks"):
        fields[name] = tuple(fields[name])
    return TokenLogprobs(**fields)
